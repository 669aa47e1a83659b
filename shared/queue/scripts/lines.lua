-- lines: where waiting tasks stand, beside the main set, which stays the truth: each in one place.
--
-- One that came back once in `once`, more often in `often`, by its due time. Any other in the lane of tasks with an open
-- job, or without: `lines` holds `group\0due\0task`, `ring` each group's next turn: its head's due time, or a moment
-- after its last turn. An entry counts only while the main set has the same due time.
local FRESH, WITH_JOB = { lines = lines, ring = ring }, { lines = job_lines, ring = job_ring }

local LAST = 9999999999999 -- the latest that is told apart, in 2286

local function due_text(due) return string.format('%013d', math.min(due, LAST)) end

-- Entries of a group, the oldest first.
local function line_of(lane, group, offset, count)
  return redis.call('ZRANGEBYLEX', lane.lines, '[' .. group .. '\0', '(' .. group .. '\1', 'LIMIT', offset, count)
end

-- Where tasks belong: for each place that any of them belongs to its members, with the group of each in a lane. `dues`:
-- false for one that does not wait; `backs`: how often each came back, as text; the others are looked up unless given.
local function places(names, dues, backs, whose, has_job)
  whose, has_job = whose or call('HMGET', groups, names), has_job or call('SMISMEMBER', jobs, names)
  local found = {}
  for i, name in ipairs(names) do
    local due, back = dues[i], backs[i]
    if due then
      local place = back == '0' and (has_job[i] == 1 and WITH_JOB or FRESH) or back == '1' and once or often
      local there = found[place]
      if not there then
        there = { members = {}, dues = {}, groups = {} }
        found[place] = there
      end
      local at, group = #there.members + 1, whose[i] and whose[i]:gsub('%z', ' ') or ''
      there.members[at], there.dues[at], there.groups[at] = name, due, group
      if back == '0' then there.members[at] = group .. '\0' .. due_text(due) .. '\0' .. name end
    end
  end
  return found
end

-- A group that waits for its turn keeps it; any other has it when its first task is due.
local function join_ring(lane, whose, dues)
  local soonest, names, sooner = {}, {}, {}
  for i, group in ipairs(whose) do
    local due = soonest[group]
    if not due then names[#names + 1] = group end
    if not due or dues[i] < due then soonest[group] = dues[i] end
  end
  for i, at in ipairs(call('ZMSCORE', lane.ring, names)) do
    local turn = math.max(soonest[names[i]], now)
    if not at or tonumber(at) >= now + 1 and tonumber(at) > turn then
      sooner[#sooner + 1], sooner[#sooner + 2] = turn, names[i]
    end
  end
  call('ZADD', lane.ring, sooner)
end

-- Let tasks that wait stand in line, once group and job of each are known; how many did not.
local function line_up(names, dues, backs, whose, has_job)
  if #names == 0 then return 0 end
  local added = 0
  for place, found in pairs(places(names, dues, backs, whose, has_job)) do
    local scores = {}
    for i, member in ipairs(found.members) do
      scores[2 * i - 1], scores[2 * i] = place.ring and 0 or found.dues[i], member
    end
    added = added + call('ZADD', place.lines or place, scores)
    if place.ring then join_ring(place, found.groups, found.dues) end
  end
  return added
end

-- Take tasks out of line, before their scores, groups or jobs change.
local function step_out(names)
  if #names == 0 then return end
  local dues, backs = call('ZMSCORE', queue, names), {}
  for i, due in ipairs(dues) do
    dues[i], backs[i] = tonumber(due or 0) > 0 and tonumber(due), '0'
  end
  call('ZREM', once, names)
  call('ZREM', often, names)
  for lane, found in pairs(places(names, dues, backs)) do
    call('ZREM', lane.lines or lane, found.members)
    for _, group in ipairs(lane.ring and found.groups or {}) do
      if #line_of(lane, group, 0, 1) == 0 then redis.call('ZREM', lane.ring, group) end
    end
  end
end

-- Let tasks of the main set, as ZRANGE WITHSCORES gives them, stand where they belong; those in process stand nowhere.
-- How many did not.
local function catch_up(range)
  local names, dues, backs = {}, {}, {}
  for i = 1, #range, 2 do
    if tonumber(range[i + 1]) > 0 then names[#names + 1], dues[#dues + 1] = range[i], tonumber(range[i + 1]) end
  end
  for i, text in ipairs(call('HMGET', state, names)) do
    local _, _, _, back = parse(text)
    backs[i] = back
  end
  return line_up(names, dues, backs)
end

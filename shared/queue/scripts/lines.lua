-- lines: where waiting tasks stand, beside the main set, which stays the truth: each in one place.
--
-- One that came back once in `once`, more often in `often`, by its due time, plus JOB if its job is open: so either kind
-- is found without the other. Any other in the lane of tasks with an open job, or without: `lines` holds
-- `group\0due\0task`, `ring` each group's next turn: its head's due time, or a moment after its last turn. An entry
-- counts only while the main set has the same due time.
local FRESH = { lines = lines, ring = ring, soonest = {} } -- soonest: when the first task is due of each group that stands
local WITH_JOB = { lines = job_lines, ring = job_ring, soonest = {} }

local JOB = 2 ^ 51
local LAST = 9999999999999 -- the latest that is told apart, in 2286

local function due_text(due) return string.format('%013d', math.min(due, LAST)) end

-- Entries of a group, the oldest first.
local function line_of(lane, group, offset, count)
  return redis.call('ZRANGEBYLEX', lane.lines, '[' .. group .. '\0', '(' .. group .. '\1', 'LIMIT', offset, count)
end

-- Where a task belongs that waits and came back so often, as text.
local function place_of(back, has_job)
  if back == '0' then return has_job == 1 and WITH_JOB or FRESH end
  return back == '1' and once or often
end

local function group_name(text) return text and text:gsub('%z', ' ') or '' end

local function entry(group, due, name) return group .. '\0' .. due_text(due) .. '\0' .. name end

local standing = {} -- place -> what `enter` adds to it

-- Let a task that waits stand where it belongs, once `enter` is called. `back`: how often it came back, as text.
local function stand(name, due, back, group, has_job)
  local place = place_of(back, has_job)
  local found = standing[place]
  if not found then
    found = {}
    standing[place] = found
  end
  local at = #found + 1
  if place.ring then
    group = group_name(group)
    found[at], found[at + 1] = 0, entry(group, due, name)
    if due < (place.soonest[group] or math.huge) then place.soonest[group] = due end
  else
    found[at], found[at + 1] = due + JOB * has_job, name
  end
end

-- A group that waits for its turn keeps it; any other has it when its first task is due.
local function join_ring(lane)
  local names, sooner, soonest = {}, {}, lane.soonest
  for group in pairs(soonest) do names[#names + 1] = group end
  for i, at in ipairs(call('ZMSCORE', lane.ring, names)) do
    local turn = math.max(soonest[names[i]], now)
    if not at or tonumber(at) >= now + 1 and tonumber(at) > turn then
      sooner[#sooner + 1], sooner[#sooner + 2] = turn, names[i]
    end
  end
  call('ZADD', lane.ring, sooner)
  lane.soonest = {}
end

-- Enter in the lines whoever stands; how many were in none.
local function enter()
  local added = 0
  for place, found in pairs(standing) do
    added = added + call('ZADD', place.lines or place, found)
    if place.ring then join_ring(place) end
    standing[place] = nil
  end
  return added
end

-- Let tasks that wait stand in line, once group and job of each are known; how many stood in none.
local function line_up(names, dues, backs)
  local whose, has_job = call('HMGET', groups, names), call('SMISMEMBER', jobs, names)
  for i, name in ipairs(names) do stand(name, dues[i], backs[i], whose[i], has_job[i]) end
  return enter()
end

-- When the first is due of those that wait with an open job, nil for none.
local function first_with_job()
  local first
  for key, offset in pairs({ [job_ring] = 0, [once] = JOB, [often] = JOB }) do
    local due = redis.call('ZRANGEBYSCORE', key, offset, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    first = due and math.min(due - offset, first or math.huge) or first
  end
  return first
end

-- How many are due of those that came back once, or more often.
local function due_in(place)
  return redis.call('ZCOUNT', place, '-inf', now) + redis.call('ZCOUNT', place, JOB, JOB + now)
end

-- Take tasks out of line, before their scores, groups or jobs change.
local function step_out(names)
  if #names == 0 then return end
  call('ZREM', once, names)
  call('ZREM', often, names)
  local whose, has_job, left = call('HMGET', groups, names), call('SMISMEMBER', jobs, names), {}
  for i, due in ipairs(call('ZMSCORE', queue, names)) do
    due = tonumber(due or 0)
    if due > 0 then
      local lane, group = place_of('0', has_job[i]), group_name(whose[i])
      left[lane] = left[lane] or { entries = {}, groups = {} }
      table.insert(left[lane].entries, entry(group, due, names[i]))
      left[lane].groups[group] = true
    end
  end
  for lane, found in pairs(left) do
    call('ZREM', lane.lines, found.entries)
    for group in pairs(found.groups) do
      if #line_of(lane, group, 0, 1) == 0 then redis.call('ZREM', lane.ring, group) end
    end
  end
end

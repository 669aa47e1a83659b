-- ring: whose task goes next, for claim alone. Groups take turns; within a group the oldest task goes first.
--
-- A round takes up to `allowed` tasks, fresh ones while `slots` are free, and reads about `steps` entries of lines.
local LANES = { FRESH, WITH_JOB }
local NOW, NEVER = due_text(now), '~' -- due times are compared as text here

-- `members`, `names` and `dues` are those entries of lines that were read and confirmed; `gone` are those to remove.
local function new_round(allowed, slots, steps)
  local gone = { [once] = {}, [often] = {}, [FRESH] = {}, [WITH_JOB] = {} }
  return {
    allowed = allowed, slots = slots, steps = steps, taken = {}, gone = gone, turns = {}, cut = {},
    members = {}, names = {}, dues = {}, seen = {},
  }
end

-- Of the round's entries `at` is the line's next one, `last` its last; `read` is how many of the line's were read, and
-- `after` when the one behind them is due, at the soonest, for that was not confirmed; NEVER: all were read.
local function new_line(place, group)
  return { place = place, group = group, at = 1, last = 0, read = 0, after = '' }
end

-- Whether groups may have a turn that do not take part.
local function leaves_some(round) return round.cut[WITH_JOB] or round.cut[FRESH] and round.slots > 0 end

-- Whether the round did not come to all that it might take; then it has taken or removed some or moved turns, so that
-- the next one sees others.
local function is_cut(round) return round.steps <= 0 or round.is_stale or leaves_some(round) end

-- Add entries, each of the line that `of` says, to lines that have none left: those that the main set confirms, each task
-- once; the rest go.
local function confirm(round, of, members, names, dues)
  local seen, at, line = round.seen, #round.names, nil
  for i, score in ipairs(call('ZMSCORE', queue, names)) do
    local name, due = names[i], dues[i]
    if of[i] ~= line then
      line = of[i]
      line.at = at + 1
    end
    if score and not seen[name] and (score == due or due_text(score) == due) then
      at = at + 1
      seen[name], line.last = true, at
      round.members[at], round.names[at], round.dues[at] = members[i], name, due
    else
      local gone = round.gone[line.place]
      gone[#gone + 1] = members[i]
      round.is_stale = true
    end
  end
end

-- Read on in lines that are at the end of what was read: so many entries of each, and when the next one is due.
local function read(round, some, count)
  local of, members, names, dues, n = {}, {}, {}, {}, 0
  for _, line in ipairs(some) do
    if round.steps <= 0 then break end
    local found, from = line_of(line.place, line.group, line.read, count + 1), #line.group + 2
    local after = found[count + 1]
    for i = 1, after and count or #found do
      local member = found[i]
      n = n + 1
      of[n], members[n], names[n], dues[n] = line, member, member:sub(from + 14), member:sub(from, from + 12)
    end
    round.steps, line.read = round.steps - 1 - #found, line.read + (after and count or #found)
    line.after = after and (after:match('^%d+', from) or ''):sub(1, 13) or NEVER -- '' of junk: it is read, and goes
  end
  confirm(round, of, members, names, dues)
end

-- When the next task of a line is due, or at the soonest, as far as it was read.
local function next_due(round, line)
  if line.at <= line.last then return round.dues[line.at] end
  return line.after
end

-- When the next task of a line is due, after NOW at the soonest; NEVER if it has none, or none within the steps.
local function head(round, line, count)
  while line.at > line.last and line.after <= NOW and round.steps > 0 do read(round, { line }, count) end
  local due = next_due(round, line)
  return (line.at <= line.last or due > NOW) and due or NEVER
end

local function take(round, line)
  local at, gone = line.at, round.gone[line.place]
  round.taken[#round.taken + 1] = round.names[at]
  gone[#gone + 1] = round.members[at]
  line.at = at + 1
end

-- Up to `most` turns of a group: its oldest due tasks that may go; how many it had.
local function serve(round, turn, most, count)
  local fresh, with_job, had = turn[FRESH], turn[WITH_JOB], 0
  while had < most do
    local due = fresh and round.slots > 0 and head(round, fresh, count) or NEVER
    local other_due = with_job and head(round, with_job, count) or NEVER
    if due > NOW and other_due > NOW then break end
    take(round, due <= other_due and fresh or with_job)
    if due <= other_due then round.slots = round.slots - 1 end
    had = had + 1
  end
  if had > 0 then turn.served = #round.taken end
  return had
end

-- Let the groups take part that have something due in lanes that may go: in order, with a line for each lane.
local function join(round, lanes)
  local turns = round.turns
  for _, lane in ipairs(lanes) do
    local before = #turns
    local range = redis.call('ZRANGEBYSCORE', lane.ring, '-inf', '(' .. now + 1, 'WITHSCORES', 'LIMIT', 0, round.allowed)
    for i = 1, #range, 2 do
      local group, since = range[i], tonumber(range[i + 1])
      local turn, line = turns[group], new_line(lane, group)
      if turn then
        turn.since, turn[lane] = math.min(turn.since, since), line
      else
        turn = { group = group, since = since, served = false, [lane] = line }
        turns[group], turns[#turns + 1] = turn, turn
      end
    end
    round.cut[lane] = #range == 2 * round.allowed
    if before > 0 and #range > 0 then -- a range is in order, two are not
      table.sort(turns, function(a, b) return a.since < b.since or a.since == b.since and a.group < b.group end)
    end
  end
end

-- One turn for each group, again and again, unless some could not be read or did not take part; the last one that has
-- any left takes all that there is room for.
local function go_round(round)
  join(round, round.slots > 0 and LANES or { WITH_JOB })
  local waiting, count, first = round.turns, math.ceil(round.allowed / math.max(1, #round.turns)), {}
  for i = 1, math.min(#waiting, round.allowed) do
    first[#first + 1] = waiting[i][FRESH]
    first[#first + 1] = waiting[i][WITH_JOB]
  end
  read(round, first, count)
  while #waiting > 0 do
    local again, each = {}, #waiting == 1 and not leaves_some(round) and round.allowed - #round.taken or 1
    for _, turn in ipairs(waiting) do
      if #round.taken == round.allowed then return end
      if serve(round, turn, each, count) == each then again[#again + 1] = turn end
    end
    waiting = round.steps > 0 and not leaves_some(round) and again or {}
  end
end

local LEAST = 50 -- entries that are read: some may be stale

-- Those that came back go without a turn, the oldest first; while no slots are free only those with a job.
local function take_back(round, place)
  local line, of, names, dues, has_job = new_line(place), {}, {}, {}, {}
  local function due_of(from, offset, count)
    return redis.call('ZRANGEBYSCORE', place, from, now + offset, 'WITHSCORES', 'LIMIT', 0, count)
  end
  local open = due_of(JOB, JOB, math.max(LEAST, round.allowed))
  local none = round.slots > 0 and due_of('-inf', 0, math.max(LEAST, math.min(round.allowed, round.slots))) or NONE
  local i, j = 1, 1 -- both ranges are in order
  while open[i] or none[j] do
    local at, due, other_due = #names + 1, (open[i + 1] or math.huge) - JOB, tonumber(none[j + 1] or math.huge)
    if due < other_due or due == other_due and open[i] < none[j] then
      names[at], dues[at], has_job[open[i]] = open[i], due_text(due), 1
      i = i + 2
    else
      names[at], dues[at], has_job[none[j]] = none[j], due_text(other_due), 0
      j = j + 2
    end
    of[at] = line
  end
  confirm(round, of, names, names, dues)
  for at, is_open in ipairs(call('SMISMEMBER', jobs, round.names)) do
    line.at = at
    if is_open ~= has_job[round.names[at]] then
      round.gone[place][#round.gone[place] + 1], round.is_stale = round.names[at], true
    elseif #round.taken < round.allowed and (is_open == 1 or round.slots > 0) then
      round.slots = round.slots - 1 + is_open
      take(round, line)
    end
  end
end

-- When each group that took part has its next turn: once its head is due, or behind all that wait.
local function next_turns(round)
  local last, lanes = now, {}
  for _, lane in ipairs(LANES) do
    local top = redis.call('ZREVRANGEBYSCORE', lane.ring, '(' .. now + 1, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if top[2] then lanes[#lanes + 1], last = lane, math.max(last, top[2]) end
  end
  for _, lane in ipairs(lanes) do
    local scores, none, elsewhere, behind = {}, {}, {}, {}
    for _, turn in ipairs(round.turns) do
      local line, at = turn[lane], turn.served and last + turn.served / 4096
      local due = line and next_due(round, line) or NEVER
      if due > NOW and due ~= NEVER then at = due end
      if line and due == NEVER then
        none[#none + 1] = turn.group
      elseif line and at then
        scores[#scores + 1], scores[#scores + 2] = at, turn.group
      elseif at then
        elsewhere[#elsewhere + 1], behind[#behind + 1] = turn.group, at
      end
    end
    for i, score in ipairs(call('ZMSCORE', lane.ring, elsewhere)) do
      if score and tonumber(score) < now + 1 then scores[#scores + 1], scores[#scores + 2] = behind[i], elsewhere[i] end
    end
    call('ZREM', lane.ring, none)
    call('ZADD', lane.ring, scores)
  end
end

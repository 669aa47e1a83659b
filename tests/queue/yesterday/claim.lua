-- claim: take due tasks for a while, all at once: no two callers get the same one. Fairness is decided here: between the
-- groups of one provider, that is; between providers work/tick.py decides.
--
-- Promise   First, tasks whose lease has expired go back, due since its end, one crash the richer: "suspects".
--           Then due tasks without a crash are marked 0, leased and handed out, oldest first, as many as `limit` and
--           the gate allow; or, asked for a suspect, exactly one task with crashes, the oldest. While all `open jobs`
--           are open, only tasks that have one are. Where tasks have groups, the group with the least in process
--           goes first; of several such, the one that has waited longest: since its oldest task fell due, or since its
--           last turn if that is later. So whoever had a turn goes behind all that wait, and whoever comes later too.
--           Each call sees the 500 oldest that are due, and 500 more of the rest in turn: a group with nothing in
--           process and n groups before it has its turn within (n + 1) * (1 + ceil(due / 500)) calls that hand out
--           something; turns are remembered of the 10,000 groups that had theirs last.
-- ARGV      1 token  2 lease in ms  3 limit, at most 200  4 '1': a suspect
--           5 parallel  6 open jobs  7 ms per attempt  8 burst (0: no limit)
-- Returns   ms until the next ordinary task may begin (0: perhaps more now, -1: none), whether suspects wait (1/0),
--           how many leases had expired, then for each task: name, generation, crashes, record (nil if missing)
local token, lease_ms, want_suspect = ARGV[1], tonumber(ARGV[2]), ARGV[4] == '1'
local limit = want_suspect and 1 or tonumber(ARGV[3])
local limits = limits_at(5)
local MOST, WINDOW, REACH, GROUPS = 200, 500, 10000, 10000 -- a call looks at no more than REACH due tasks
local grouped = redis.call('EXISTS', groups) == 1

-- read: which leases have expired
local returned, orphans = {}, {}
local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'WITHSCORES', 'LIMIT', 0, MOST)
for i = 1, #expired, 2 do
  local name, score = expired[i], redis.call('ZSCORE', queue, expired[i])
  orphans[#orphans + 1] = name
  if score and tonumber(score) == 0 then
    local generation, _, crashes = parse(redis.call('HGET', state, name))
    local due = math.max(1, tonumber(expired[i + 1]))
    returned[#returned + 1] = { name = name, generation = generation, crashes = crashes + 1, due = due }
  end
end
local live = redis.call('ZCARD', leases) - #orphans
local allowed, gate_ms, pass = allowance(limits, live, limit)

-- read: whose jobs are open, where so many are that it matters; `slots` are left for `fresh` tasks, which have none
local slots, has_job, names_with_job, due_with_job, ended = math.huge, {}, {}, {}, {}
local open_jobs = limits.open_jobs > 0 and redis.call('SCARD', jobs) or 0
if limits.open_jobs > 0 and open_jobs + allowed > limits.open_jobs then
  local open = redis.call('ZINTER', 2, queue, jobs, 'WEIGHTS', 1, 0, 'WITHSCORES')
  for i = 1, #open, 2 do
    local name, due = open[i], tonumber(open[i + 1])
    has_job[name] = true
    if due >= 1 and due <= now then
      names_with_job[#names_with_job + 1], due_with_job[#due_with_job + 1] = name, due
    end
  end
  slots = math.max(0, limits.open_jobs - #open / 2)
  if open_jobs > #open / 2 then -- no script leaves these; a server that evicts keys may
    for _, name in ipairs(redis.call('SMEMBERS', jobs)) do
      if not has_job[name] and #ended < MOST then ended[#ended + 1] = name end
    end
  end
end

-- read: due tasks
local found, seen, fresh, suspects = {}, {}, 0, false
local function consider(task)
  local is_fresh = slots < math.huge and not has_job[task.name]
  if seen[task.name] or is_fresh and slots == 0 then return end
  seen[task.name] = true
  suspects = suspects or task.crashes > 0
  if want_suspect == (task.crashes > 0) then
    found[#found + 1], task.is_fresh = task, is_fresh
    if is_fresh then fresh = fresh + 1 end
  end
end
local function consider_all(names, due)
  for first = 1, #names, WINDOW do
    for i, text in ipairs(redis.call('HMGET', state, unpack(names, first, math.min(#names, first + WINDOW - 1)))) do
      local at, generation, _, crashes = first + i - 1, parse(text)
      consider({ name = names[at], generation = generation, crashes = crashes, due = due[at] })
    end
  end
end
local function scan(offset, count)
  local names, due = {}, {}
  local range = redis.call('ZRANGEBYSCORE', queue, 1, now, 'WITHSCORES', 'LIMIT', offset, count)
  for i = 1, #range, 2 do
    names[#names + 1], due[#due + 1] = range[i], tonumber(range[i + 1])
  end
  consider_all(names, due)
  return #names == count
end
local function enough() return #found - math.max(0, fresh - slots) >= allowed end
local unseen, cursor = false, nil
if allowed > 0 then
  for _, task in ipairs(returned) do consider(task) end
  if slots > 0 and grouped then
    unseen = scan(0, WINDOW)
    if unseen then
      local rest = redis.call('ZCOUNT', queue, 1, now) - WINDOW
      cursor = math.floor(number(redis.call('HGET', gate, 'cursor')) or 0)
      if cursor >= rest then cursor = 0 end
      scan(WINDOW + cursor, WINDOW + MOST) -- MOST more than a step, since so many before them may be taken in between
      cursor = cursor + WINDOW
    end
  elseif slots > 0 then
    local offset, chunk, more = 0, math.max(limit, 50), true
    while more and not enough() and fresh <= slots and offset < REACH do
      more, offset, chunk = scan(offset, chunk), offset + chunk, math.min(2 * chunk, 1000, REACH - offset - chunk)
    end
    unseen = more and offset == REACH
  end
  if grouped or not enough() then consider_all(names_with_job, due_with_job) end
end

-- choose: the oldest; of ordinary tasks with groups, that of the group with the least in process, waiting longest
local function groups_of(names)
  local whose = call('HMGET', groups, names)
  for i = 1, #names do whose[i] = whose[i] or '' end
  return whose
end
local function older(a, b) return a.due < b.due or (a.due == b.due and a.name < b.name) end
if grouped or want_suspect then table.sort(found, older) end
if grouped and not want_suspect and #found > allowed then
  local turns = {}
  local function next_turns(names)
    local whose, at = groups_of(names), {}
    for i, group in ipairs(whose) do
      turns[group] = (turns[group] or 0) + 1
      at[i] = turns[group]
    end
    return at, whose
  end
  for i = 0, live - 1, WINDOW do
    next_turns(redis.call('ZRANGEBYSCORE', leases, '(' .. now, '+inf', 'LIMIT', i, WINDOW))
  end
  for first = 1, #found, WINDOW do
    local names = {}
    for i = first, math.min(#found, first + WINDOW - 1) do names[#names + 1] = found[i].name end
    local at, whose = next_turns(names)
    for i, served_at in ipairs(call('ZMSCORE', served, whose)) do
      local task = found[first + i - 1]
      task.turn, task.served_at = at[i], tonumber(served_at or 0)
      task.since = math.max(task.due, task.served_at)
    end
  end
  table.sort(found, function(a, b)
    if a.turn ~= b.turn then return a.turn < b.turn end
    if a.since ~= b.since then return a.since < b.since end
    if a.served_at ~= b.served_at then return a.served_at < b.served_at end
    return older(a, b)
  end)
end
local taken, held_back = {}, slots == 0
for _, task in ipairs(found) do
  if #taken == allowed then break end
  if task.is_fresh and slots == 0 then
    held_back = true
  else
    taken[#taken + 1] = task
    if task.is_fresh then slots = slots - 1 end
  end
end

-- read: the reply, whole before the first write
local function wait()
  if #taken == limit then return 0 end
  local next_due = redis.call('ZRANGEBYSCORE', queue, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local next_ms = next_due and math.ceil(next_due - now) or -1
  if #taken < allowed and not held_back and not unseen then return next_ms end
  if redis.call('ZCOUNT', queue, 1, now) + #returned == #taken then -- nothing is held back
    return next_ms < 0 and -1 or math.max(next_ms, gate_ms)
  end
  if #taken == allowed then return gate_ms end
  if live + #taken == 0 and not unseen then return next_ms end -- no job ends before one is asked after
  return next_ms < 0 and AGAIN_MS or math.min(next_ms, AGAIN_MS)
end
local names, zeros, lease_ends, states = {}, {}, {}, {}
for i, task in ipairs(taken) do
  names[i] = task.name
  zeros[2 * i - 1], zeros[2 * i] = 0, task.name
  lease_ends[2 * i - 1], lease_ends[2 * i] = now + lease_ms, task.name
  states[2 * i - 1], states[2 * i] = task.name, task.generation .. ':' .. token .. ':' .. task.crashes
end
local reply = { wait(), suspects and 1 or 0, #returned }
local turns_had = {}
if grouped then
  local last = tonumber(redis.call('ZRANGE', served, -1, -1, 'WITHSCORES')[2] or 0)
  for i, group in ipairs(groups_of(names)) do -- later than any before, though the clock has not moved
    turns_had[2 * i - 1], turns_had[2 * i] = math.max(now, last + 1), group
  end
end
for i, record in ipairs(call('HMGET', tasks, names)) do
  local task, at = taken[i], 4 * i
  reply[at], reply[at + 1], reply[at + 2], reply[at + 3] = task.name, task.generation, task.crashes, record
end

-- write: a removal first, so that a server at maxmemory still drains
call('ZREM', leases, #orphans > 0 and orphans or names)
call('SREM', jobs, ended)
for _, task in ipairs(returned) do
  redis.call('ZADD', queue, task.due, task.name)
  redis.call('HSET', state, task.name, task.generation .. '::' .. task.crashes)
end
call('ZADD', queue, zeros)
call('ZADD', leases, lease_ends)
call('HSET', state, states)
if limits.open_jobs > 0 then call('SADD', jobs, names) end
admit(pass, names)
call('ZADD', served, turns_had)
if grouped then redis.call('ZREMRANGEBYRANK', served, 0, -GROUPS - 1) end
if cursor then note({ 'cursor' }, { 'cursor', cursor }) end
return reply

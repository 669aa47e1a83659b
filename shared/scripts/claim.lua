-- claim: take due tasks for a while, all at once: no two callers get the same one.
--
-- Promise   First, tasks whose lease has expired go back, due since its end, one crash the richer: "suspects".
--           Then due tasks without a crash are marked 0, leased and handed out, oldest first, as many as `limit` and
--           the gate allow; or, asked for a suspect, exactly one task with crashes, the oldest. While `open jobs` are
--           open, only their tasks are. Where tasks have groups, the group with the least in process goes first; of
--           a long backlog each call sees the oldest 500 and 500 more, another 500 each time.
-- ARGV      1 token  2 lease in ms  3 limit, at most 200  4 '1': a suspect
--           5 parallel  6 open jobs  7 ms per token  8 burst (0: no limit)
-- Returns   ms until the next ordinary task may begin (0: perhaps more now, -1: none), whether suspects wait (1/0),
--           how many leases had expired, then for each task: name, generation, crashes, record (nil if missing)
local token, lease_ms, want_suspect = ARGV[1], tonumber(ARGV[2]), ARGV[4] == '1'
local limit = want_suspect and 1 or tonumber(ARGV[3])
local limits = {
  parallel = tonumber(ARGV[5]), open_jobs = tonumber(ARGV[6]),
  ms_per_token = tonumber(ARGV[7]), burst = tonumber(ARGV[8]),
}
local MOST, WINDOW = 200, 500
local grouped = redis.call('EXISTS', groups) == 1
local chunk = grouped and WINDOW or math.max(limit, 50)

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
local allowed, wait_ms, fields = allowance(limits, live, limit)

-- read: due tasks; `fresh` ones have no job yet, where the number of jobs is limited
local fresh_left = limits.open_jobs > 0 and limits.open_jobs - redis.call('SCARD', jobs) or 0
local found, seen, suspects, held_back = {}, {}, #returned > 0, false
local function consider(names, due)
  local states = call('HMGET', state, names)
  for i, name in ipairs(names) do
    local generation, _, crashes = parse(states[i])
    suspects = suspects or crashes > 0
    if want_suspect == (crashes > 0) and not seen[name] then
      seen[name] = true
      local fresh = limits.open_jobs > 0 and redis.call('SISMEMBER', jobs, name) == 0
      if fresh and fresh_left < 1 then
        held_back = true
      else
        found[#found + 1] = { name = name, generation = generation, crashes = crashes, due = due[i], fresh = fresh }
      end
    end
    if #found >= allowed and not grouped then return end
  end
end
local function scan(offset)
  local names, due = {}, {}
  local range = redis.call('ZRANGEBYSCORE', queue, 1, now, 'WITHSCORES', 'LIMIT', offset, chunk)
  for i = 1, #range, 2 do
    names[#names + 1], due[#due + 1] = range[i], tonumber(range[i + 1])
  end
  consider(names, due)
  return #names == chunk
end
local function scan_jobs()
  local names, due = {}, {}
  for _, name in ipairs(redis.call('SMEMBERS', jobs)) do
    local score = tonumber(redis.call('ZSCORE', queue, name) or 0)
    if score >= 1 and score <= now then names[#names + 1], due[#due + 1] = name, score end
  end
  consider(names, due)
end
local cursor
if allowed > 0 then
  if limits.open_jobs > 0 then scan_jobs() end
  local more, offset = scan(0), chunk
  while more and #found < allowed and not grouped do
    more, offset = scan(offset), offset + chunk
  end
  if more and grouped then
    cursor = tonumber(redis.call('HGET', gate, 'cursor') or 0) % (redis.call('ZCOUNT', queue, 1, now) - chunk)
    scan(chunk + cursor)
    cursor = cursor + chunk
  end
end

-- choose: the oldest; with groups, the oldest of the group with the least in process
local function older(a, b) return a.due < b.due or (a.due == b.due and a.name < b.name) end
if limits.open_jobs > 0 or grouped then table.sort(found, older) end
if grouped and #found > allowed then
  local load, names = {}, {}
  for i, task in ipairs(found) do names[i] = task.name end
  for i, group in ipairs(call('HMGET', groups, names)) do found[i].group = group or '' end
  for _, group in ipairs(call('HMGET', groups, redis.call('ZRANGE', leases, 0, -1))) do
    load[group or ''] = (load[group or ''] or 0) + 1
  end
  for _, task in ipairs(found) do
    load[task.group] = (load[task.group] or 0) + 1
    task.turn = load[task.group]
  end
  table.sort(found, function(a, b) return a.turn < b.turn or (a.turn == b.turn and older(a, b)) end)
end
local taken = {}
for _, task in ipairs(found) do
  if #taken == allowed then break end
  if not task.fresh or fresh_left > 0 then
    fresh_left = fresh_left - (task.fresh and 1 or 0)
    taken[#taken + 1] = task
  else
    held_back = true
  end
end
local oldest = returned[1]
if want_suspect and allowed > 0 and oldest and (not taken[1] or oldest.due < taken[1].due) then
  taken = { oldest }
end

-- read: the reply, whole before the first write
if #taken == limit then
  wait_ms = 0
elseif #taken < allowed and not held_back then
  local next_due = redis.call('ZRANGEBYSCORE', queue, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  wait_ms = next_due[2] and next_due[2] - now or -1
end
local names, zeros, lease_ends, states = {}, {}, {}, {}
for i, task in ipairs(taken) do
  names[i] = task.name
  zeros[2 * i - 1], zeros[2 * i] = 0, task.name
  lease_ends[2 * i - 1], lease_ends[2 * i] = now + lease_ms, task.name
  states[2 * i - 1], states[2 * i] = task.name, task.generation .. ':' .. token .. ':' .. task.crashes
end
local reply = { wait_ms, suspects and 1 or 0, #returned }
for i, record in ipairs(call('HMGET', tasks, names)) do
  reply[#reply + 1] = taken[i].name
  reply[#reply + 1] = taken[i].generation
  reply[#reply + 1] = taken[i].crashes
  reply[#reply + 1] = record
end

-- write: a removal first, so that a server at maxmemory still drains
call('ZREM', leases, #orphans > 0 and orphans or names)
for _, task in ipairs(returned) do
  redis.call('ZADD', queue, task.due, task.name)
  redis.call('HSET', state, task.name, task.generation .. '::' .. task.crashes)
end
call('ZADD', queue, zeros)
call('ZADD', leases, lease_ends)
call('HSET', state, states)
if limits.open_jobs > 0 then call('SADD', jobs, names) end
admit(fields, #taken, lease_ms)
if cursor then redis.call('HSET', gate, 'cursor', cursor) end
return reply

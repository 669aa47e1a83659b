-- claim: take due tasks for a while, all at once: no two callers get the same one.
--
-- Promise   First, tasks whose lease has expired go back, due since its end, one crash the richer: "suspects".
--           Then up to `limit` due tasks without a crash are marked 0, leased and handed out, oldest first; or,
--           asked for a suspect, exactly one task with crashes, the oldest.
-- KEYS      1 queue  2 leases  3 state  4 tasks
-- ARGV      1 token  2 lease in ms  3 limit, at most 200  4 '1': a suspect
-- Returns   ms until the next ordinary task falls due (0: perhaps more now, -1: none), whether suspects wait (1/0),
--           how many leases had expired, then for each task: name, generation, crashes, record (nil if missing)
local queue, leases, state, tasks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, lease_ms, limit, want_suspect = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
if want_suspect then limit = math.min(limit, 1) end
local MOST, CHUNK, REACH = 200, math.max(limit, 50), 10000 -- a call looks at so many due tasks and no further
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function parse(text)
  local generation, crashes = string.match(text or '', '^(%d+):[^:]*:(%d+)$')
  return generation or '0', tonumber(crashes) or 0
end

-- read: which leases have expired
local returned, orphans, oldest = {}, {}, nil
local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'WITHSCORES', 'LIMIT', 0, MOST)
for i = 1, #expired, 2 do
  local name, lease_end = expired[i], tonumber(expired[i + 1])
  local score = redis.call('ZSCORE', queue, name)
  orphans[#orphans + 1] = name
  if score and tonumber(score) == 0 then
    local generation, crashes = parse(redis.call('HGET', state, name))
    local back = { name = name, generation = generation, crashes = crashes + 1, due = math.max(1, lease_end) }
    returned[#returned + 1] = back
    oldest = oldest or back
  end
end

-- read: which tasks to hand out
local taken, suspects, offset, exhausted = {}, #returned > 0, 0, false
while #taken < limit and not exhausted and offset < REACH do
  local due = redis.call('ZRANGEBYSCORE', queue, 1, now, 'WITHSCORES', 'LIMIT', offset, CHUNK)
  exhausted = #due < 2 * CHUNK
  offset = offset + CHUNK
  for i = 1, #due, 2 do
    local generation, crashes = parse(redis.call('HGET', state, due[i]))
    local found = { name = due[i], generation = generation, crashes = crashes, due = tonumber(due[i + 1]) }
    suspects = suspects or crashes > 0
    if #taken < limit and want_suspect == (crashes > 0) then
      taken[#taken + 1] = found
    end
    if #taken == limit then break end
  end
end
if want_suspect and oldest and (not taken[1] or oldest.due < taken[1].due) then
  taken = { oldest }
end

-- read: the reply, whole before the first write
local wait_ms = -1
if #taken == limit then
  wait_ms = 0
else
  local next_due = redis.call('ZRANGEBYSCORE', queue, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if next_due[2] then wait_ms = next_due[2] - now end
end
local reply = { wait_ms, suspects and 1 or 0, #returned }
for _, task in ipairs(taken) do
  reply[#reply + 1] = task.name
  reply[#reply + 1] = task.generation
  reply[#reply + 1] = task.crashes
  reply[#reply + 1] = redis.call('HGET', tasks, task.name)
end

-- write: a removal first, so that a server at maxmemory still drains
if #orphans > 0 then
  redis.call('ZREM', leases, unpack(orphans))
elseif #taken > 0 then
  redis.call('ZREM', leases, taken[1].name)
end
for _, task in ipairs(returned) do
  redis.call('ZADD', queue, task.due, task.name)
  redis.call('HSET', state, task.name, task.generation .. '::' .. task.crashes)
end
for _, task in ipairs(taken) do
  redis.call('ZADD', queue, 0, task.name)
  redis.call('ZADD', leases, now + lease_ms, task.name)
  redis.call('HSET', state, task.name, task.generation .. ':' .. token .. ':' .. task.crashes)
end
return reply

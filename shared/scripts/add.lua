-- add: put tasks into the queue, unique by name and generation.
--
-- Promise   nothing there -> created; a lower generation there, in whatever state -> replaced, which fences its
--           worker; the same -> exists, or created again if the token is the caller's own; a higher -> stale.
-- KEYS      1 queue  2 leases  3 state  4 tasks  5 dead
-- ARGV      1 token  2 lease in ms (0: waiting, else processed by the caller at once)
--           then for each task: name, generation, delay in ms, record
-- Returns   for each task: created | exists | stale
local queue, leases, state, tasks, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, lease_ms = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- waiting, leased or dead; at 0 without a lease nobody would ever come back to it
local function is_held(name)
  local score = redis.call('ZSCORE', queue, name)
  if score then return tonumber(score) > 0 or redis.call('ZSCORE', leases, name) end
  return redis.call('ZSCORE', dead, name)
end

local replies, created, seen = {}, {}, {}
for i = 3, #ARGV, 4 do
  local name, generation = ARGV[i], tonumber(ARGV[i + 1])
  local held_generation, held_token = 0, ''
  if seen[name] then
    held_generation, held_token = seen[name], token
  elseif is_held(name) then
    local g, t = string.match(redis.call('HGET', state, name) or '', '^(%d+):([^:]*):%d+$')
    held_generation, held_token = tonumber(g) or 0, t
  end
  local reply = 'created'
  if generation < held_generation then
    reply = 'stale'
  elseif generation == held_generation then
    reply = held_token == token and 'created' or 'exists'
  else
    seen[name] = generation
    created[#created + 1] = i
  end
  replies[#replies + 1] = reply
end

for _, i in ipairs(created) do
  local name, generation, delay_ms, record = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  if lease_ms > 0 then
    redis.call('ZADD', queue, 0, name)
    redis.call('ZADD', leases, now + lease_ms, name)
  else
    redis.call('ZADD', queue, now + delay_ms, name)
    redis.call('ZREM', leases, name)
  end
  redis.call('HSET', state, name, generation .. ':' .. token .. ':0')
  redis.call('HSET', tasks, name, record)
  redis.call('ZREM', dead, name)
end
return replies

-- bury: give tasks up and keep them for a person.
--
-- Promise   a task held under this token and generation becomes a dead letter: listed, never due, its record gone
--           (the item in DynamoDB tells what happened); any other is not touched.
-- KEYS      1 queue  2 leases  3 state  4 tasks  5 dead
-- ARGV      for each task: name, token, generation
-- Returns   for each task: 1 done, 0 lost
local queue, leases, state, tasks, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local replies = {}
for i = 1, #ARGV, 3 do
  local held = string.match(redis.call('HGET', state, ARGV[i]) or '', '^(%d+:[^:]*):%d+$')
  replies[#replies + 1] = held == ARGV[i + 2] .. ':' .. ARGV[i + 1] and 1 or 0
end

for i, held in ipairs(replies) do
  if held == 1 then
    local name, generation = ARGV[3 * i - 2], ARGV[3 * i]
    redis.call('ZREM', leases, name)
    redis.call('ZREM', queue, name)
    redis.call('HDEL', tasks, name)
    redis.call('HSET', state, name, generation .. '::0')
    redis.call('ZADD', dead, now, name)
  end
end
return replies

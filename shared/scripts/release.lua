-- release: give tasks back for later.
--
-- Promise   a task held under this token and generation is due after its delay, nobody's, its crashes forgotten;
--           any other is not touched.
-- KEYS      1 queue  2 leases  3 state  4 tasks
-- ARGV      for each task: name, token, generation, delay in ms, record ('': as it was)
-- Returns   for each task: 1 done, 0 lost
local queue, leases, state, tasks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local replies = {}
for i = 1, #ARGV, 5 do
  local held = string.match(redis.call('HGET', state, ARGV[i]) or '', '^(%d+:[^:]*):%d+$')
  replies[#replies + 1] = held == ARGV[i + 2] .. ':' .. ARGV[i + 1] and 1 or 0
end

for i, held in ipairs(replies) do
  if held == 1 then
    local name, generation = ARGV[5 * i - 4], ARGV[5 * i - 2]
    local delay_ms, record = tonumber(ARGV[5 * i - 1]), ARGV[5 * i]
    redis.call('ZREM', leases, name)
    redis.call('ZADD', queue, now + delay_ms, name)
    redis.call('HSET', state, name, generation .. '::0')
    if record ~= '' then redis.call('HSET', tasks, name, record) end
  end
end
return replies

-- complete: the data is stored; drop the tasks.
--
-- Promise   a task held under this token and generation leaves nothing behind; any other is not touched.
-- KEYS      1 queue  2 leases  3 state  4 tasks
-- ARGV      for each task: name, token, generation
-- Returns   for each task: 1 done, 0 lost
local queue, leases, state, tasks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local replies = {}
for i = 1, #ARGV, 3 do
  local held = string.match(redis.call('HGET', state, ARGV[i]) or '', '^(%d+:[^:]*):%d+$')
  replies[#replies + 1] = held == ARGV[i + 2] .. ':' .. ARGV[i + 1] and 1 or 0
end

for i, held in ipairs(replies) do
  if held == 1 then
    local name = ARGV[3 * i - 2]
    redis.call('ZREM', leases, name)
    redis.call('ZREM', queue, name)
    redis.call('HDEL', state, name)
    redis.call('HDEL', tasks, name)
  end
end
return replies

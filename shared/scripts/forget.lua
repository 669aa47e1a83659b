-- forget: drop tasks that ended elsewhere.
--
-- Promise   whatever is held of the task with this generation or a lower one leaves nothing behind, whoever has the
--           lease, dead letters too; a higher generation is not touched.
-- KEYS      1 queue  2 leases  3 state  4 tasks  5 dead
-- ARGV      for each task: name, generation
-- Returns   for each task: 1 something was dropped, 0 nothing was
local queue, leases, state, tasks, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local names, replies = {}, {}
for i = 1, #ARGV, 2 do
  local held = string.match(redis.call('HGET', state, ARGV[i]) or '', '^(%d+):[^:]*:%d+$')
  names[#names + 1] = (tonumber(held) or 0) <= tonumber(ARGV[i + 1]) and ARGV[i] or false
end

for i, name in ipairs(names) do
  replies[i] = 0
  if name then
    local dropped = redis.call('ZREM', leases, name)
      + redis.call('ZREM', queue, name)
      + redis.call('ZREM', dead, name)
      + redis.call('HDEL', state, name)
      + redis.call('HDEL', tasks, name)
    replies[i] = dropped > 0 and 1 or 0
  end
end
return replies

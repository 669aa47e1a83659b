-- look: where tasks stand; changes nothing.
--
-- KEYS      1 queue  2 leases  3 state  4 tasks  5 dead
-- ARGV      1 '1': with records, then names
-- Returns   for each task: generation ('0' if unknown), then ms until it is due (0 or less: now), ms until its lease
--           ends, ms since it was buried, its record: each nil where it does not apply
local queue, leases, state, tasks, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local with_records = ARGV[1] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local replies = {}
for i = 2, #ARGV do
  local name = ARGV[i]
  local due, lease, buried = redis.call('ZSCORE', queue, name), nil, redis.call('ZSCORE', dead, name)
  if due and tonumber(due) == 0 then
    due, lease = false, redis.call('ZSCORE', leases, name)
  end
  replies[i - 1] = {
    string.match(redis.call('HGET', state, name) or '', '^(%d+):[^:]*:%d+$') or '0',
    due and due - now or false,
    lease and lease - now or false,
    buried and now - buried or false,
    with_records and redis.call('HGET', tasks, name),
  }
end
return replies

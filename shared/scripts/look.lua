-- look: where tasks stand; changes nothing.
--
-- ARGV      1 '1': with records, then names
-- Returns   for each task: generation ('0' if unknown), then ms until it is due (0 or less: now), ms until its lease
--           ends, ms since it was buried, its record: each nil where it does not apply
local with_records = ARGV[1] == '1'

local replies = {}
for i = 2, #ARGV do
  local name = ARGV[i]
  local due, lease, buried = redis.call('ZSCORE', queue, name), nil, redis.call('ZSCORE', dead, name)
  if due and tonumber(due) == 0 then
    due, lease = false, redis.call('ZSCORE', leases, name)
  end
  replies[i - 1] = {
    (parse(redis.call('HGET', state, name))),
    due and due - now or false,
    lease and lease - now or false,
    buried and now - buried or false,
    with_records and redis.call('HGET', tasks, name),
  }
end
return replies

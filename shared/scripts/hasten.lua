-- hasten: somebody says that there is news; make tasks that wait for later due now.
--
-- Promise   a task that waits with this generation, not yet due, is due now; one that is due already keeps its turn;
--           one that is processed, dead, or of another generation is not touched. Nothing else changes.
-- ARGV      for each task: name, generation
-- Returns   for each task: 1 due now instead of later, 0 nothing changed
local names, replies, waiting, scores = column(1, 2), {}, {}, {}
for i, text in ipairs(call('HMGET', state, names)) do
  local score = tonumber(redis.call('ZSCORE', queue, names[i]) or 0)
  local hastened = parse(text) == ARGV[2 * i] and score > now
  replies[i] = hastened and 1 or 0
  if hastened then
    waiting[#waiting + 1] = names[i]
    scores[#scores + 1], scores[#scores + 2] = now, names[i]
  end
end

call('ZREM', queue, waiting)
call('ZADD', queue, scores)
return replies

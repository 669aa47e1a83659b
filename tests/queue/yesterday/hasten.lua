-- hasten: somebody says that there is news; make tasks that wait for later due sooner.
--
-- Promise   a task that waits with this generation for longer than the delay is due after it; one that is due sooner
--           keeps its turn; one that is processed, dead, or of another generation is not touched. Nothing else changes.
-- ARGV      for each task: name, generation, delay in ms
-- Returns   for each task: 1 due sooner than before, 0 nothing changed
local WIDTH = 3
local names, replies, waiting, scores = column(1, WIDTH), {}, {}, {}
for i, text in ipairs(call('HMGET', state, names)) do
  local score = tonumber(redis.call('ZSCORE', queue, names[i]) or 0)
  local due = now + tonumber(ARGV[i * WIDTH])
  local hastened = parse(text) == ARGV[i * WIDTH - 1] and score > due
  replies[i] = hastened and 1 or 0
  if hastened then
    waiting[#waiting + 1] = names[i]
    scores[#scores + 1], scores[#scores + 2] = due, names[i]
  end
end

call('ZREM', queue, waiting)
call('ZADD', queue, scores)
return replies

-- end: drop or bury tasks that ended elsewhere, and leave those in process to their workers.
--
-- Promise   what is there of the task with this generation becomes a dead letter, or, this generation or a lower one,
--           leaves nothing behind; another generation is not touched. A task in process keeps its lease, since its
--           attempt goes on and counts as one; how it ends stands in place of its record, and its release does that.
-- ARGV      for each task: name, generation, 'buried' or 'forgotten'
-- Returns   for each task: 1 it has ended or will with its release, 0 there was nothing to end
local WIDTH = 3
local names, replies, buried, forgotten, states, listed, marks, held = column(1, WIDTH), {}, {}, {}, {}, {}, {}, {}
for i, text in ipairs(call('HMGET', state, names)) do
  local name, generation, becomes = names[i], ARGV[(i - 1) * WIDTH + 2], ARGV[i * WIDTH]
  local lease_ends, own = redis.call('ZSCORE', leases, name), parse(text)
  local ends = tonumber(own) <= tonumber(generation)
  if becomes == 'buried' then ends = own == generation and redis.call('ZSCORE', queue, name) end
  replies[i] = ends and 1 or 0
  if ends and lease_ends and now < tonumber(lease_ends) then
    held[#held + 1] = name
    marks[#marks + 1], marks[#marks + 2] = name, becomes
  elseif ends and becomes == 'buried' then
    buried[#buried + 1] = name
    listed[#listed + 1], listed[#listed + 2] = now, name
    states[#states + 1], states[#states + 2] = name, own .. '::0'
  elseif ends then
    forgotten[#forgotten + 1] = i
  end
end

call('HDEL', tasks, held)
for _, i in ipairs(forgotten) do replies[i] = drop({ names[i] }) > 0 and 1 or 0 end
drop(buried)
call('ZADD', dead, listed)
call('HSET', state, states)
call('HSET', tasks, marks)
return replies

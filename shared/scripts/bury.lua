-- bury: give tasks up and keep them for a person.
--
-- Promise   a task held under this token and generation becomes a dead letter: listed, never due, its record gone
--           (the item in DynamoDB tells what happened); any other is not touched.
-- ARGV      for each task: name, token, generation
-- Returns   for each task: 1 done, 0 lost
local replies, held = held_rows(1, 3)
local listed, states = {}, {}
for i, is_held in ipairs(replies) do
  if is_held == 1 then
    local name, generation = ARGV[3 * i - 2], ARGV[3 * i]
    listed[#listed + 1], listed[#listed + 2] = now, name
    states[#states + 1], states[#states + 2] = name, generation .. '::0'
  end
end

drop(held)
call('ZADD', dead, listed)
call('HSET', state, states)
return replies

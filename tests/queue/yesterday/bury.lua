-- bury: make dead letters of tasks, for a person to revive.
--
-- Promise   a task held under this token and generation becomes a dead letter: listed, never due, its record gone
--           (the item in DynamoDB tells what happened); any other is not touched. The gate learns how the provider is.
-- ARGV      what was heard (see prelude), then for each task: name, token, generation, reply
-- Returns   for each task: 1 done, 0 lost
local WIDTH = 4
local replies, held = held_rows(HEARD + 1, WIDTH)
local gone, set = heard(replies, WIDTH)
local listed, states = {}, {}
for i, is_held in ipairs(replies) do
  if is_held == 1 then
    local at = HEARD + 1 + (i - 1) * WIDTH
    listed[#listed + 1], listed[#listed + 2] = now, ARGV[at]
    states[#states + 1], states[#states + 2] = ARGV[at], ARGV[at + 2] .. '::0'
  end
end

drop(held)
call('ZADD', dead, listed)
call('HSET', state, states)
note(gone, set)
return replies

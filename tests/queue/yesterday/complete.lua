-- complete: the data is stored; drop the tasks.
--
-- Promise   a task held under this token and generation leaves nothing behind; any other is not touched. The gate
--           learns how the provider is.
-- ARGV      what was heard (see prelude), then for each task: name, token, generation, reply
-- Returns   for each task: 1 done, 0 lost
local WIDTH = 4
local replies, held = held_rows(HEARD + 1, WIDTH)
local gone, set = heard(replies, WIDTH)

drop(held)
note(gone, set)
return replies

-- complete: the data is stored; drop the tasks.
--
-- Promise   a task held under this token and generation leaves nothing behind; any other is not touched. Its
--           provider is well, which ends a pause.
-- ARGV      for each task: name, token, generation
-- Returns   for each task: 1 done, 0 lost
local replies, held = held_rows(1, 3)

drop(held)
if #held > 0 then recover() end
return replies

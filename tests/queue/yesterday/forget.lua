-- forget: drop tasks that ended elsewhere.
--
-- Promise   whatever is held of the task with this generation or a lower one leaves nothing behind, whoever has the
--           lease, dead letters too; a higher generation is not touched. The gate learns how the provider is.
-- ARGV      what was heard (see prelude), then for each task: name, generation, reply
-- Returns   for each task: 1 something was dropped, 0 nothing was
local WIDTH = 3
local names, older, known = column(HEARD + 1, WIDTH), {}, {}
for i, text in ipairs(call('HMGET', state, names)) do
  older[i] = tonumber((parse(text))) <= tonumber(ARGV[HEARD + 2 + (i - 1) * WIDTH])
  known[i] = text and older[i] and 1 or 0
end
local gone, set = heard(known, WIDTH)

local replies = {}
for i, name in ipairs(names) do
  replies[i] = older[i] and drop({ name }) > 0 and 1 or 0
end
note(gone, set)
return replies

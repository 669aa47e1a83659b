-- look: where tasks stand; changes nothing.
--
-- ARGV      1 '1': with records  2 parallel  3 open jobs  4 ms per attempt  5 burst (0: no limit)  6 unused; for each task: name
-- Returns   for each task what `place` tells
local place, replies = new_places(limits_at(2), ARGV[1] == '1'), {}
for i, name in ipairs(rows(7, { 'name' }).name) do
  replies[i] = place(name)
end
return replies

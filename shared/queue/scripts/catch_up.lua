-- catch_up: what another release left, or a server lost, lines up; for claim and mend.
--
-- Let tasks of the main set, as ZRANGE WITHSCORES gives them, stand where they belong; those in process stand nowhere.
-- How many did not.
local function catch_up(range)
  local names, dues, backs = {}, {}, {}
  for i = 1, #range, 2 do
    if tonumber(range[i + 1]) > 0 then names[#names + 1], dues[#dues + 1] = range[i], tonumber(range[i + 1]) end
  end
  for i, text in ipairs(call('HMGET', state, names)) do
    local _, _, _, back = parse(text)
    backs[i] = back
  end
  return line_up(names, dues, backs)
end

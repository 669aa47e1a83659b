-- release: give tasks back for later.
--
-- Promise   a task held under this token and generation is due after its delay, nobody's, its crashes forgotten, its
--           job counted as open or not; any other is not touched. One that `end` has found in process ends instead.
--           The gate learns how the provider is.
-- ARGV      what was heard (see prelude), then for each task:
--           name, token, generation, delay in ms, record ('': as it was), '1': its job is open, reply
-- Returns   for each task: 1 done, 0 lost
local WIDTH = 7
local ENDS = { buried = true, forgotten = true }
local replies, held = held_rows(HEARD + 1, WIDTH)
local gone, set = heard(replies, WIDTH)
local scores, states, records, jobless, kept, ended, listed = {}, {}, {}, {}, {}, {}, {}
local marks, number_held = call('HMGET', tasks, held), 0
for i, is_held in ipairs(replies) do
  local at = HEARD + 1 + (i - 1) * WIDTH
  local name, generation, delay_ms, record = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4]
  number_held = number_held + is_held
  local mark = is_held == 1 and marks[number_held]
  if ENDS[mark] then
    replies[i], ended[#ended + 1] = 0, name
    if mark == 'buried' then
      listed[#listed + 1], listed[#listed + 2] = now, name
      states[#states + 1], states[#states + 2] = name, generation .. '::0'
    end
  elseif is_held == 1 then
    kept[#kept + 1] = name
    scores[#scores + 1], scores[#scores + 2] = now + delay_ms, name
    states[#states + 1], states[#states + 2] = name, generation .. '::0'
    if record ~= '' then records[#records + 1], records[#records + 2] = name, record end
    if ARGV[at + 5] ~= '1' then jobless[#jobless + 1] = name end
  end
end

drop(ended)
call('ZREM', leases, kept)
call('SREM', jobs, jobless)
call('ZADD', queue, scores)
call('ZADD', dead, listed)
call('HSET', state, states)
call('HSET', tasks, records)
note(gone, set)
return replies

-- release: give tasks back for later.
--
-- Promise   a task held under this token and generation is due after its delay, nobody's, its crashes forgotten, its
--           job counted as open or not; any other is not touched. The gate learns how the provider is.
-- ARGV      what was heard (see prelude), then for each task:
--           name, token, generation, delay in ms, record ('': as it was), '1': its job is open
-- Returns   for each task: 1 done, 0 lost
local WIDTH = 6
local replies, held = held_rows(HEARD + 1, WIDTH)
local gone, set = heard(held)
local scores, states, records, jobless = {}, {}, {}, {}
for i, is_held in ipairs(replies) do
  if is_held == 1 then
    local at = HEARD + 1 + (i - 1) * WIDTH
    local name, generation, delay_ms, record = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4]
    scores[#scores + 1], scores[#scores + 2] = now + delay_ms, name
    states[#states + 1], states[#states + 2] = name, generation .. '::0'
    if record ~= '' then records[#records + 1], records[#records + 2] = name, record end
    if ARGV[at + 5] ~= '1' then jobless[#jobless + 1] = name end
  end
end

call('ZREM', leases, held)
call('SREM', jobs, jobless)
call('ZADD', queue, scores)
call('HSET', state, states)
call('HSET', tasks, records)
note(gone, set)
return replies

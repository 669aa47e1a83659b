-- release: give tasks back for later.
--
-- Promise   a task held under this token and generation is due after its delay, nobody's, its crashes forgotten;
--           any other is not touched. What the answers say of the provider goes to its gate: a pause during which
--           nobody asks, or that it is well, which ends a pause; troubles in a row are counted; `patience` of them,
--           or one after a pause, pause it too, twice as long each time.
-- ARGV      1 pause in ms (0: none, -1: the provider is well)  2 troubles  3 patience
--           4 pause in ms for troubles  5 the longest
--           then for each task: name, token, generation, delay in ms, record ('': as it was), '1': it has a job
-- Returns   for each task: 1 done, 0 lost
local pause_ms, troubles = tonumber(ARGV[1]), tonumber(ARGV[2])
local patience, trouble_ms, longest_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local replies, held = held_rows(6, 6)
local scores, states, records, jobless = {}, {}, {}, {}
for i, is_held in ipairs(replies) do
  if is_held == 1 then
    local at = 6 * i
    local name, generation, delay_ms, record = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4]
    scores[#scores + 1], scores[#scores + 2] = now + delay_ms, name
    states[#states + 1], states[#states + 2] = name, generation .. '::0'
    if record ~= '' then records[#records + 1], records[#records + 2] = name, record end
    if ARGV[at + 5] ~= '1' then jobless[#jobless + 1] = name end
  end
end
local before = redis.call('HMGET', gate, 'until', 'troubles', 'pauses')
local paused_until, in_a_row = tonumber(before[1]) or 0, (tonumber(before[2]) or 0) + troubles
local pauses = tonumber(before[3]) or 0
if troubles > 0 and now >= paused_until and (in_a_row >= patience or paused_until > 0) then
  pause_ms = math.max(pause_ms, math.min(longest_ms, trouble_ms * 2 ^ pauses))
end

call('ZREM', leases, held)
call('SREM', jobs, jobless)
call('ZADD', queue, scores)
call('HSET', state, states)
call('HSET', tasks, records)
if pause_ms < 0 then
  recover()
elseif troubles > 0 or pause_ms > 0 then
  redis.call('HDEL', gate, 'probe')
  redis.call('HSET', gate, 'troubles', in_a_row)
  if pause_ms > 0 then
    redis.call('HSET', gate, 'until', math.max(paused_until, now + math.floor(pause_ms)), 'pauses', pauses + 1)
  end
end
return replies

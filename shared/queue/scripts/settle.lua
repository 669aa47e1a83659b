-- settle: say what becomes of tasks in hand, all in one call.
--
-- Promise   A task held under this token and generation: `waiting` is due after its delay, nobody's, its job counted as
--           open or not; after an attempt it has not come back any more, without one it is as before. `buried` becomes
--           a dead letter: listed, never due, its record gone (the item tells what happened). `completed` and
--           `forgotten` leave nothing behind. Any other task is not touched. One that `end` has found in process ends
--           instead of waiting. The gate learns how the provider is.
-- ARGV      what was heard (see gate), the provider's limits (see gate), '1': it looks, then for each task:
--           name, token, generation, completed | waiting | buried | forgotten, delay in ms, record ('': as it was),
--           '1': its job is open, '1': an attempt was made, its item's turn if that is higher, reply
-- Returns   ms until a message must start a run, -1 for none (see wake); then a list, for each task: 1 done, 0 lost (or
--           ended by `end`); if it looks, a pair of that and what `place` tells
local limits, asked = limits_at(HEARD + 1), rows(HEARD + 7, {
  'name', 'token', 'generation', 'becomes', 'delay_ms', 'record', 'has_job', 'attempted', 'turn', 'reply',
})
local replies, dropped, buried = {}, {}, {}
local waiting, dues, backs, scores, states, records, jobless = {}, {}, {}, {}, {}, {}, {}
for i, text in ipairs(call('HMGET', state, asked.name)) do
  local name, becomes, generation, holder, turn, back, mark = asked.name[i], asked.becomes[i], parse(text)
  local is_held = text and holder == asked.token[i] and generation == asked.generation[i]
  replies[i] = is_held and 1 or 0
  if is_held and becomes == 'waiting' and ENDS[mark] then becomes, replies[i] = ENDS[mark], 0 end
  if is_held and becomes == 'waiting' then
    local at = #waiting + 1
    waiting[at], dues[at], backs[at] = name, now + asked.delay_ms[i], asked.attempted[i] == '1' and '0' or back
    scores[2 * at - 1], scores[2 * at] = dues[at], name
    states[2 * at - 1] = name
    if asked.turn[i] ~= '0' then turn = math.max(turn, asked.turn[i]) end
    states[2 * at] = state_of(generation, '', turn, backs[at])
    if asked.record[i] ~= '' then records[#records + 1], records[#records + 2] = name, asked.record[i] end
    if asked.has_job[i] ~= '1' then jobless[#jobless + 1] = name end
  elseif is_held then
    dropped[#dropped + 1] = name
    if becomes == 'buried' then buried[#buried + 1] = { name = name, generation = generation, turn = turn } end
  else
    asked.reply[i] = '0' -- its probe, if it was one, is another's by now
  end
end
local unset, set = heard(asked)

call('ZREM', leases, waiting) -- removals first, so that a server at maxmemory still drains
call('SREM', jobs, jobless)
drop(dropped)
bury(buried)
call('ZADD', queue, scores)
call('HSET', state, states)
call('HSET', tasks, records)
line_up(waiting, dues, backs)
note(unset, set)
return { plan(limits, 0), ARGV[HEARD + 6] == '1' and with_places(replies, asked.name, limits) or replies }

-- end: drop or bury tasks that the caller does not hold, since they ended elsewhere.
--
-- Promise   what is there of the task with this generation becomes a dead letter (`buried`), or, with this generation or
--           a lower one, leaves nothing behind (`forgotten`); another generation is not touched. A task in process keeps
--           its lease, since its attempt goes on and counts as one; how it ends stands in its state, and its settling
--           does that. `dropped`: like forgotten, but at once, even from the worker that holds it.
-- ARGV      the provider's limits (see gate), then for each task: name, generation, buried | forgotten | dropped
-- Returns   ms until a message must start a run, -1 for none (see wake): an end may let another task begin its job; then a
--           list, for each task: 1 it has ended or will with its settling, 0 there was nothing to end
local MARKS = { buried = 'b', forgotten = 'f' }
local limits, asked, replies = limits_at(1), rows(6, { 'name', 'generation', 'becomes' }), {}
local marks, out, forgotten, buried, probe = {}, {}, {}, {}, redis.call('HGET', gate, 'probe')
for i, text in ipairs(call('HMGET', state, asked.name)) do
  local name, becomes, own, holder, turn, back = asked.name[i], asked.becomes[i], parse(text)
  local ends, score = tonumber(own) <= tonumber(asked.generation[i]), redis.call('ZSCORE', queue, name)
  if becomes == 'buried' then ends = own == asked.generation[i] and score end
  local lease_ends = tonumber(score or 1) == 0 and redis.call('ZSCORE', leases, name) -- any other is left over
  replies[i] = ends and 1 or 0
  if ends and MARKS[becomes] and now < tonumber(lease_ends or 0) then
    marks[#marks + 1], marks[#marks + 2] = name, state_of(own, holder, turn .. MARKS[becomes], back)
  elseif ends then
    out[#out + 1] = name
    if becomes == 'buried' then
      buried[#buried + 1] = { name = name, generation = own, turn = turn }
    else
      forgotten[#forgotten + 1] = i
    end
  end
end

redis.call('ZREM', leases, '') -- a removal first, so that a server at maxmemory still drains
step_out(out)
for _, i in ipairs(forgotten) do
  replies[i] = drop({ asked.name[i] }) > 0 and 1 or 0
  if asked.name[i] == probe then redis.call('HDEL', gate, 'probe') end -- as if it had come to nothing
end
drop(out)
bury(buried)
call('HSET', state, marks)
return { limits.open_jobs > 0 and plan(limits, 0) or -1, replies }

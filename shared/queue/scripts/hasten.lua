-- hasten: somebody says that there is news; make tasks that wait for later due sooner.
--
-- Promise   a task that waits with this generation for longer than the delay is due after it; one that is due sooner
--           keeps its turn; one that is processed, dead, or of another generation is not touched. Nothing else changes.
-- ARGV      the provider's limits (see gate), then for each task: name, generation, delay in ms
-- Returns   ms until a message must start a run, -1 for none (see wake); then a list, for each task: 1 due sooner than
--           before, 0 nothing changed
local limits, asked = limits_at(1), rows(6, { 'name', 'generation', 'delay_ms' })
local replies, waiting, dues, backs, scores = {}, {}, {}, {}, {}
local stored = call('ZMSCORE', queue, asked.name)
for i, text in ipairs(call('HMGET', state, asked.name)) do
  local generation, _, _, back = parse(text)
  local due = now + tonumber(asked.delay_ms[i])
  local hastened = generation == asked.generation[i] and tonumber(stored[i] or 0) > due
  replies[i] = hastened and 1 or 0
  if hastened then
    local at = #waiting + 1
    waiting[at], dues[at], backs[at] = asked.name[i], due, back
    scores[2 * at - 1], scores[2 * at] = due, asked.name[i]
  end
end

step_out(waiting)
call('ZADD', queue, scores)
line_up(waiting, dues, backs)
return { plan(limits, 0), replies }

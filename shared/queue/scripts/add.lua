-- add: put tasks into the queue, unique by name and generation.
--
-- Promise   nothing there -> created; a lower generation there, in whatever state -> replaced, which fences its
--           worker; the same -> exists, or created again if the token is the caller's own; a higher -> stale.
--           A call names no task twice.
--           Leased to the caller, in its first turn, as far as the gate allows attempts to begin; beyond that it waits,
--           due after its delay; where the provider has limits, only what those that are due already and have not come
--           back leave of them: nobody who waits at a limit is overtaken.
-- ARGV      1 token  2 lease in ms (0: waiting, else processed by the caller at once)
--           3 parallel  4 open jobs  5 ms per attempt  6 burst (0: no limit)  7 '1': messages are sent (see wake)
--           8 '1': it looks; then for each task: name, generation, delay in ms, record, group ('': none), '1': its job is open,
--           turn that its item knows, '1': it came back
-- Returns   ms until a message must start a run, -1 for none; then a list, for each task:
--           created | waiting (created, but not leased as asked) | exists | stale; if it looks, a pair of that and what
--           `place` tells
local token, lease_ms, limits = ARGV[1], tonumber(ARGV[2]), limits_at(3)
local asked = rows(9, { 'name', 'generation', 'delay_ms', 'record', 'group', 'has_job', 'turn', 'back' })
local names = asked.name
local short = token:sub(1, 8) -- enough to tell the caller's own, of a task that waits

-- waiting, leased or dead; at 0 without a lease nobody would ever come back to it
local function is_held(name)
  local score = redis.call('ZSCORE', queue, name)
  if score then return tonumber(score) > 0 or redis.call('ZSCORE', leases, name) end
  return redis.call('ZSCORE', dead, name)
end

local allowed, pass = 0, nil
if lease_ms > 0 then
  local ahead, fresh, _ = 0, 0, nil
  if limits.parallel + limits.open_jobs + limits.attempt_ms > 0 then
    local function due(key) return redis.call('ZCOUNT', key, 1, now) end
    ahead = due(queue) - due_in(once) - due_in(often)
    fresh = due(ring) > 0 and ahead or 0
  end
  allowed, _, pass = allowance(limits, redis.call('ZCOUNT', leases, '(' .. now, '+inf'), #names + ahead)
  allowed = allowed - ahead
  if limits.open_jobs > 0 then allowed = math.min(allowed, limits.open_jobs - redis.call('SCARD', jobs) - fresh) end
end

local every, replaced, scores, states, records, opened, group_of = {}, {}, {}, {}, {}, {}, {}
local begun, lease_ends, waits = {}, {}, false

local replies = {}
for i, text in ipairs(call('HMGET', state, names)) do
  local name, before, holder, is_leased = names[i], 0, token, nil
  if text and is_held(name) then
    before, holder = parse(text)
    is_leased = redis.call('ZSCORE', leases, name)
  end
  local newer = asked.generation[i] - before
  if newer > 0 then
    local at, due, turn, group, back = #scores, 0, '1', asked.group[i], asked.back[i]
    is_leased, holder = #begun < allowed, token
    local has_job = limits.open_jobs > 0 and (is_leased or asked.has_job[i] == '1') and 1 or 0
    if is_leased then
      begun[#begun + 1] = name
      lease_ends[#lease_ends + 1], lease_ends[#lease_ends + 2] = now + lease_ms, name
    else
      due, holder, turn, waits = now + asked.delay_ms[i], short, asked.turn[i], true
      stand(name, due, back, group, has_job)
    end
    every[#every + 1] = name
    scores[at + 1], scores[at + 2] = due, name
    states[at + 1], states[at + 2] = name, state_of(asked.generation[i], holder, turn, back)
    records[at + 1], records[at + 2] = name, asked.record[i]
    if text then replaced[#replaced + 1] = name end
    if has_job == 1 then opened[#opened + 1] = name end
    if group ~= '' then group_of[#group_of + 1], group_of[#group_of + 2] = name, group end
  end
  if newer < 0 then
    replies[i] = 'stale'
  elseif newer == 0 and holder ~= token and holder ~= short then
    replies[i] = 'exists'
  else
    replies[i] = lease_ms > 0 and not is_leased and 'waiting' or 'created'
  end
end

step_out(replaced)
call('ZADD', queue, scores) -- of new tasks the first write, so that a server at maxmemory takes none
call('ZREM', leases, every) -- of one without a state, too: halves that a server left
call('ZREM', dead, every)
call('SREM', jobs, replaced)
call('HDEL', groups, replaced)
call('ZADD', leases, lease_ends)
call('HSET', state, states)
call('HSET', tasks, records)
call('SADD', jobs, opened)
call('HSET', groups, group_of)
if waits then enter() end
if #begun > 0 then admit(pass, begun) end
return { waits and plan(limits, 0) or -1, ARGV[8] == '1' and with_places(replies, names, limits) or replies }

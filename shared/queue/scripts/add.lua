-- add: put tasks into the queue, unique by name and generation.
--
-- Promise   nothing there -> created; a lower generation there, in whatever state -> replaced, which fences its
--           worker; the same -> exists, or created again if the token is the caller's own; a higher -> stale.
--           Leased to the caller, in its first turn, as far as the gate allows attempts to begin; beyond that it waits,
--           due after its delay; where the provider has limits, only what those that are due already and have not come
--           back leave of them: nobody who waits at a limit is overtaken.
-- ARGV      1 token  2 lease in ms (0: waiting, else processed by the caller at once)
--           3 parallel  4 open jobs  5 ms per attempt  6 burst (0: no limit)  7 '1': messages are sent (see wake)
--           then for each task: name, generation, delay in ms, record, group ('': none), '1': its job is open,
--           turn that its item knows, '1': it came back
-- Returns   ms until a message must start a run, -1 for none; then a list, for each task:
--           created | waiting (created, but not leased as asked) | exists | stale
local token, lease_ms, limits = ARGV[1], tonumber(ARGV[2]), limits_at(3)
local asked = rows(8, { 'name', 'generation', 'delay_ms', 'record', 'group', 'has_job', 'turn', 'back' })
local names = asked.name
local short = token:sub(1, 8) -- enough to tell the caller's own, of a task that waits

-- waiting, leased or dead; at 0 without a lease nobody would ever come back to it
local function is_held(name)
  local score = redis.call('ZSCORE', queue, name)
  if score then return tonumber(score) > 0 or redis.call('ZSCORE', leases, name) end
  return redis.call('ZSCORE', dead, name)
end

local allowed, pass = 0, {}
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

local NOTHING = { generation = 0 }
local there, known, replies, created, begun = {}, {}, {}, {}, {}
for i, text in ipairs(call('HMGET', state, names)) do
  if text then known[names[i]] = true end
  if text and is_held(names[i]) then
    local generation, holder = parse(text)
    there[names[i]] = {
      generation = tonumber(generation), is_own = holder == token or holder == short,
      is_leased = redis.call('ZSCORE', leases, names[i]),
    }
  end
end
for i, name in ipairs(names) do
  local generation, before = tonumber(asked.generation[i]), there[name] or NOTHING
  if generation < before.generation then
    replies[i] = 'stale'
  elseif generation == before.generation and not before.is_own then
    replies[i] = 'exists'
  else
    if generation > before.generation then
      before = { generation = generation, is_own = true, is_leased = #begun < allowed, row = i }
      there[name] = before
      created[#created + 1] = i
      if before.is_leased then begun[#begun + 1] = name end
    end
    replies[i] = lease_ms > 0 and not before.is_leased and 'waiting' or 'created'
  end
end

local scores, states, records, group_of, lease_ends, opened = {}, {}, {}, {}, {}, {}
local every, replaced, waiting, dues, backs, whose, has_job = {}, {}, {}, {}, {}, {}, {}
for _, i in ipairs(created) do
  local name, at = names[i], #every + 1
  if there[name].row == i then -- else a higher generation of it follows in this very call
    local is_leased, turn, back, group = there[name].is_leased, asked.turn[i], asked.back[i], asked.group[i]
    local is_open = limits.open_jobs > 0 and (is_leased or asked.has_job[i] == '1')
    every[at] = name
    if known[name] then replaced[#replaced + 1] = name end
    scores[2 * at - 1], scores[2 * at] = is_leased and 0 or now + asked.delay_ms[i], name
    states[2 * at - 1] = name
    states[2 * at] = state_of(asked.generation[i], is_leased and token or short, is_leased and '1' or turn, back)
    records[2 * at - 1], records[2 * at] = name, asked.record[i]
    if is_leased then
      lease_ends[#lease_ends + 1], lease_ends[#lease_ends + 2] = now + lease_ms, name
    else
      local last = #waiting + 1
      waiting[last], dues[last], backs[last] = name, scores[2 * at - 1], back
      whose[last], has_job[last] = group ~= '' and group, is_open and 1 or 0
    end
    if is_open then opened[#opened + 1] = name end
    if group ~= '' then group_of[#group_of + 1], group_of[#group_of + 2] = name, group end
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
line_up(waiting, dues, backs, whose, has_job)
admit(pass, begun)
return { #waiting > 0 and plan(limits, 0) or -1, replies }

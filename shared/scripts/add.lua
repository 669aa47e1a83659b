-- add: put tasks into the queue, unique by name and generation.
--
-- Promise   nothing there -> created; a lower generation there, in whatever state -> replaced, which fences its
--           worker; the same -> exists, or created again if the token is the caller's own; a higher -> stale.
--           Leased to the caller as far as the gate allows attempts to begin; beyond that it waits, due after its delay.
-- ARGV      1 token  2 lease in ms (0: waiting, else processed by the caller at once)
--           3 parallel  4 open jobs  5 ms per token  6 burst (0: no limit)
--           then for each task: name, generation, delay in ms, record, group ('': none)
-- Returns   for each task: created | waiting (created, but not leased as asked) | exists | stale
local token, lease_ms = ARGV[1], tonumber(ARGV[2])
local limits = {
  parallel = tonumber(ARGV[3]), open_jobs = tonumber(ARGV[4]),
  ms_per_token = tonumber(ARGV[5]), burst = tonumber(ARGV[6]),
}
local names = column(7, 5)

-- waiting, leased or dead; at 0 without a lease nobody would ever come back to it
local function is_held(name)
  local score = redis.call('ZSCORE', queue, name)
  if score then return tonumber(score) > 0 or redis.call('ZSCORE', leases, name) end
  return redis.call('ZSCORE', dead, name)
end

local allowed, fields = 0, {}
if lease_ms > 0 then
  local _
  allowed, _, fields = allowance(limits, redis.call('ZCOUNT', leases, now, '+inf'), #names)
  if limits.open_jobs > 0 then allowed = math.min(allowed, limits.open_jobs - redis.call('SCARD', jobs)) end
end

local held, replies, begun = {}, {}, 0
for i, text in ipairs(call('HMGET', state, names)) do
  if text and is_held(names[i]) then
    local generation, holder = parse(text)
    held[names[i]] = { generation = tonumber(generation), token = holder, leased = redis.call('ZSCORE', leases, names[i]) }
  end
end
local created, leased = {}, {}
for i, name in ipairs(names) do
  local generation = tonumber(ARGV[2 + 5 * i + 1])
  local there = held[name] or { generation = 0 }
  if generation < there.generation then
    replies[i] = 'stale'
  elseif generation == there.generation then
    replies[i] = there.token ~= token and 'exists' or (lease_ms > 0 and not there.leased) and 'waiting' or 'created'
  else
    local is_leased = lease_ms > 0 and begun < allowed
    replies[i] = (lease_ms > 0 and not is_leased) and 'waiting' or 'created'
    if is_leased then begun = begun + 1 end
    held[name] = { generation = generation, token = token, leased = is_leased }
    created[#created + 1] = 2 + 5 * i
    leased[#leased + 1] = is_leased
  end
end

local scores, lease_ends, waiting, states, records, group_of, opened, buried = {}, {}, {}, {}, {}, {}, {}, {}, {}
for i, at in ipairs(created) do
  local name, generation, delay_ms, record, group = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  scores[#scores + 1], scores[#scores + 2] = leased[i] and 0 or now + delay_ms, name
  if leased[i] then
    lease_ends[#lease_ends + 1], lease_ends[#lease_ends + 2] = now + lease_ms, name
    opened[#opened + 1] = limits.open_jobs > 0 and name or nil
  else
    waiting[#waiting + 1] = name
  end
  states[#states + 1], states[#states + 2] = name, generation .. ':' .. token .. ':0'
  records[#records + 1], records[#records + 2] = name, record
  buried[#buried + 1] = name
  if group ~= '' then group_of[#group_of + 1], group_of[#group_of + 2] = name, group end
end
call('ZREM', dead, buried)
call('ZREM', leases, waiting)
call('ZADD', queue, scores)
call('ZADD', leases, lease_ends)
call('HSET', state, states)
call('HSET', tasks, records)
call('SADD', jobs, opened)
call('HSET', groups, group_of)
admit(fields, begun, lease_ms)
return replies

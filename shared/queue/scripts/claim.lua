-- claim: take due tasks for a while, all at once: no two callers get the same one. Fairness is decided here: between the
-- groups of one provider, that is; between providers work/tick.py decides.
--
-- Promise   First, tasks whose lease has expired wait again, due since its end, having come back once more; so does,
--           at once and as often as before, what is leased under a token whose claim got no reply; but what `end` has
--           found in process ends. Then due tasks are marked 0, leased and handed out, as many as `limit` and the gate
--           allow; the turn of each is one higher.
--           Ordinary: each group with a due task has one turn before any has two, the oldest of its tasks first; while
--           all `open jobs` are open, only tasks that have one. Once: those that came back once, the oldest first.
--           Often: exactly one of those that came back more often. Nothing is scanned: a call reads about 2 * limit
--           + 100 entries of lines, whatever waits.
-- ARGV      1 token  2 lease in ms  3 limit, at most 200  4 ordinary | once | often  5 the token without reply, or '';
--           this one: should the client repeat this call, what the first has taken goes back
--           6 parallel  7 open jobs  8 ms per attempt  9 burst (0: no limit)  10 '1': messages are sent (see wake)
--           11 run, '' for none  12 for how many ms it is alive  13 never | in time | always: when it leaves
--           alone what another run serves
-- Returns   ms until the next ordinary task may begin (0: perhaps more now, -1: none); whether some are due that came
--           back once, and more often (1/0); how many leases had expired; names whose state is junk, of which nothing
--           is left; then for each task: name, generation, turn, came back, record (nil if missing)
local token, lease_ms, which, lost = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[5]
local limit = which == 'often' and 1 or tonumber(ARGV[3])
local limits = limits_at(6)
redis.call('ZREM', leases, '') -- the first write is a removal, so that a server at maxmemory still drains

local run, alive_ms, gives_way = ARGV[11], tonumber(ARGV[12]), ARGV[13]

if gives_way ~= 'never' and is_served(run) then
  -- in time: nothing is late by more than a plan stands for
  if gives_way == 'always' or redis.call('ZCOUNT', queue, 1, now - STANDS_MS) == 0 then return { -1, 0, 0, 0, {} } end
end
if run ~= '' then
  if redis.call('EXISTS', queue) == 1 then redis.call('ZADD', runs, now + alive_ms, run) end
  forget_plans() -- it has come
end

-- Tasks of these leases wait again, due since the end of each or now, or end as they are marked; how many wait.
local function bring_back(leased, is_expired)
  local names, ends, back, ended, buried = {}, {}, {}, {}, {}
  for i = 1, #leased, 2 do names[#names + 1], ends[#ends + 1] = leased[i], leased[i + 1] end
  local scores, waiting, dues, backs = call('ZMSCORE', queue, names), {}, {}, {}
  for i, text in ipairs(call('HMGET', state, names)) do
    local generation, holder, turn, times, mark = parse(text)
    local is_back = is_expired or holder == lost
    if is_back then back[#back + 1] = names[i] end
    is_back = is_back and tonumber(scores[i] or 1) == 0
    if is_back and ENDS[mark] then
      ended[#ended + 1] = names[i]
      if mark == 'b' then buried[#buried + 1] = { name = names[i], generation = generation, turn = turn } end
    elseif is_back then
      local at = #waiting + 1
      waiting[at], dues[at] = names[i], is_expired and math.max(1, tonumber(ends[i])) or now
      backs[at] = is_expired and tostring(times + 1) or times
      redis.call('ZADD', queue, dues[at], names[i])
      redis.call('HSET', state, names[i], state_of(generation, '', turn, backs[at]))
    end
  end
  call('ZREM', leases, back)
  drop(ended)
  bury(buried)
  line_up(waiting, dues, backs)
  return #waiting
end
local expired = bring_back(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'WITHSCORES', 'LIMIT', 0, MOST), true)
if lost ~= '' then
  local most = lost == token and 2 * limit or 10 * MOST -- one that is repeated is among the last
  bring_back(redis.call('ZREVRANGE', leases, 0, most, 'WITHSCORES'), false)
end

-- Where the lines' sizes differ from the main set's (another release was at work, or a server lost some), the oldest of
-- the main set line up; where those do already, the ones behind as many as do, or some from anywhere; `mend` compares all.
local size, live, in_line = redis.call('ZCARD', queue), redis.call('ZCARD', leases), 0
for _, key in ipairs({ lines, job_lines, once, often }) do in_line = in_line + redis.call('ZCARD', key) end
if size ~= live + in_line then
  for _, first in ipairs({ 0, in_line, now % math.max(1, size) }) do
    if catch_up(redis.call('ZRANGEBYSCORE', queue, '(0', '+inf', 'WITHSCORES', 'LIMIT', first, MOST)) > 0 then break end
  end
end

local allowed, gate_ms, pass = allowance(limits, live, limit)
local slots = limits.open_jobs > 0 and math.max(0, limits.open_jobs - redis.call('SCARD', jobs)) or math.huge
local round = new_round(allowed, slots, 2 * limit + 100)
if allowed > 0 and which == 'ordinary' then
  go_round(round)
elseif allowed > 0 then
  take_back(round, which == 'once' and once or often)
end
local taken = round.taken

local function wait()
  if #taken == limit or #taken < allowed and is_cut(round) then return 0 end
  local next_due = redis.call('ZRANGEBYSCORE', queue, '(' .. now, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local next_ms = next_due and math.ceil(next_due - now) or -1
  if #taken < allowed and round.slots > 0 then return next_ms end
  if redis.call('ZCOUNT', queue, 1, now) == #taken then -- nothing is held back
    return next_ms < 0 and -1 or math.max(next_ms, gate_ms)
  end
  if #taken == allowed then return gate_ms end
  if live + #taken == 0 then return next_ms end -- no job ends before one is asked after
  return next_ms < 0 and AGAIN_MS or math.min(next_ms, AGAIN_MS)
end
local reply, names, junk = { wait(), 0, 0, expired, {} }, {}, {}
local zeros, lease_ends, states, records, lease_end = {}, {}, {}, call('HMGET', tasks, taken), now + lease_ms
for i, text in ipairs(call('HMGET', state, taken)) do
  local name, generation, _, turn, back = taken[i], parse(text)
  if generation == '0' then
    junk[#junk + 1] = name
  else
    local at, told = 2 * #names + 1, #reply
    names[#names + 1] = name
    zeros[at], zeros[at + 1] = 0, name
    lease_ends[at], lease_ends[at + 1] = lease_end, name
    states[at], states[at + 1] = name, state_of(generation, token, turn + 1, back)
    reply[told + 1], reply[told + 2], reply[told + 3] = name, generation, turn + 1
    reply[told + 4], reply[told + 5] = back, records[i]
  end
end

if #round.turns > 0 then next_turns(round) end -- reads on in lines: what is taken still stands there
for place, members in pairs(round.gone) do call('ZREM', place.lines or place, members) end
drop(junk)
call('ZADD', queue, zeros)
call('ZADD', leases, lease_ends)
call('HSET', state, states)
if limits.open_jobs > 0 then call('SADD', jobs, names) end
admit(pass, names)
if pass.slow and which == 'ordinary' and #taken < allowed and round.slots > 0 and not is_cut(round) then
  redis.call('HDEL', gate, 'slow') -- nothing is held back any more
end
reply[2], reply[3] = math.min(1, due_in(once)), math.min(1, due_in(often))
reply[5] = junk
return reply

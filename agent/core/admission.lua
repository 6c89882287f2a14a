-- The rules of agent/core/admission_book.py, run by Redis in one step. A change here is a change there.
--
-- KEYS  1 leases   sorted set: ticket -> until when it holds
--       2 queue    sorted set: ticket -> number of arrival
--       3 until    sorted set: waiting ticket -> when its time in the queue is over
--       4 seen     sorted set: waiting ticket -> until when it counts as present
--       5 loads    hash: member -> "memory first_packet_ms answers until"
--       6 state    hash: full, memory, slow, held (0 or 1), next (when the first of the queue may go in, the second a
--                  pace later), number (last arrival)
-- ARGV  1 operation  2 now in ms, or empty for the clock of Redis  3 limits as JSON  4... what the operation needs
-- All times are whole milliseconds, memory is in thousandths.
-- Returns {"admitted"}, {"queued", position, ms left}, {"refused", reason}, {"ok"}, or for "overview"
-- {"overview", leases, queue, full, memory, slow}.

local leases, queue, until_, seen, loads, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local operation = ARGV[1]
local limits = cjson.decode(ARGV[3])

local now
if ARGV[2] == '' then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
else
  now = tonumber(ARGV[2])
end

-- Lua writes large numbers as 1.7e+12, which sorted sets read well and people do not.
local function text(number)
  return string.format('%.0f', number)
end

local function flag(name)
  return redis.call('HGET', state, name) == '1'
end

local function set_flag(name, value)
  redis.call('HSET', state, name, value and '1' or '0')
end

local function forget_waiting(ticket)
  redis.call('ZREM', queue, ticket)
  redis.call('ZREM', until_, ticket)
  redis.call('ZREM', seen, ticket)
end

local function update()
  redis.call('ZREMRANGEBYSCORE', leases, '-inf', text(now))
  for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', text(now))) do
    forget_waiting(ticket)
  end
  -- Out of the queue, but kept in `until` so that they can be told when they ask.
  for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', until_, '-inf', text(now))) do
    redis.call('ZREM', queue, ticket)
  end

  local taken = redis.call('ZCARD', leases)
  if flag('full') then
    set_flag('full', taken > limits.streams_reopen)
  else
    set_flag('full', taken >= limits.streams)
  end

  local least, answers, total = nil, 0, 0
  local all = redis.call('HGETALL', loads)
  for i = 1, #all, 2 do
    local memory, first, count, until_ms = string.match(all[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    if until_ms == nil or tonumber(until_ms) <= now then
      redis.call('HDEL', loads, all[i])
    else
      memory, first, count = tonumber(memory), tonumber(first), tonumber(count)
      if least == nil or memory < least then least = memory end
      answers = answers + count
      total = total + first * count
    end
  end
  least = least or 0
  if flag('memory') then
    set_flag('memory', least > limits.memory_low)
  else
    set_flag('memory', least >= limits.memory_high)
  end
  local bound = flag('slow') and limits.first_packet_low or limits.first_packet_high
  set_flag('slow', total > bound * answers)

  local held = flag('full') or flag('memory') or flag('slow')
  if flag('held') and not held then
    redis.call('HSET', state, 'next', text(now))
  end
  set_flag('held', held)
end

local function ask(ticket)
  if redis.call('ZSCORE', leases, ticket) then
    redis.call('ZADD', leases, text(now + limits.lease), ticket)
    return {'admitted'}
  end
  local deadline = redis.call('ZSCORE', until_, ticket)
  if deadline and tonumber(deadline) <= now then
    forget_waiting(ticket)
    return {'refused', 'waited'}
  end
  if not deadline then
    if flag('full') then return {'refused', 'streams'} end
    if flag('memory') then return {'refused', 'memory'} end
  end
  local length = redis.call('ZCARD', queue)
  local rank = deadline and redis.call('ZRANK', queue, ticket) or length
  local next_ms = tonumber(redis.call('HGET', state, 'next') or '0')
  if flag('held') or now < next_ms + rank * limits.pace then
    if not deadline then
      if length >= limits.queue then return {'refused', 'queue_full'} end
      redis.call('ZADD', queue, redis.call('HINCRBY', state, 'number', 1), ticket)
      deadline = now + limits.queue_ms
      redis.call('ZADD', until_, text(deadline), ticket)
    end
    redis.call('ZADD', seen, text(now + limits.presence), ticket)
    return {'queued', redis.call('ZRANK', queue, ticket) + 1, tonumber(deadline) - now}
  end
  if length > 0 then
    forget_waiting(ticket)
    redis.call('HSET', state, 'next', text(next_ms + limits.pace))
  end
  redis.call('ZADD', leases, text(now + limits.lease), ticket)
  update()
  return {'admitted'}
end

local answer = {'ok'}
if operation == 'report' then
  redis.call('HSET', loads, ARGV[4], ARGV[5] .. ' ' .. text(now + limits.load))
end
update()
if operation == 'ask' then
  answer = ask(ARGV[4])
elseif operation == 'renew' then
  for i = 4, #ARGV do
    forget_waiting(ARGV[i])
    redis.call('ZADD', leases, text(now + limits.lease), ARGV[i])
  end
  update()
elseif operation == 'release' then
  redis.call('ZREM', leases, ARGV[4])
  forget_waiting(ARGV[4])
  update()
elseif operation == 'overview' then
  answer = {'overview', redis.call('ZCARD', leases), redis.call('ZCARD', queue),
    tonumber(redis.call('HGET', state, 'full')), tonumber(redis.call('HGET', state, 'memory')),
    tonumber(redis.call('HGET', state, 'slow'))}
end
-- What nobody uses any more goes by itself.
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, 86400000)
end
return answer

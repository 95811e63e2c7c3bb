-- Adds a batch to the ranking and to its slots, as planned, or changes nothing and says why not.
--
-- Everything is checked before the first write: nothing after it can fail. Numbers are whole and within ±2^53: the
-- board's volume, the sum of all |value| in its slots, never exceeds 2^53, so no sum of any of them does either.
-- KEYS[1] ranking — sorted set: member, score
-- KEYS[2] meta — hash: the board's state
-- KEYS[3] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[4] writers — hash: writer, "sequence offset seconds" of its last batch
-- KEYS[5...] seen — sets of identities, newest bucket first, and last the one to forget; as many as ARGV[13] says
-- KEYS[...] slot — hashes of the slots that the batch adds to
-- ARGV[1] epoch — string: the epoch that the caller knows
-- ARGV[2] writer — string: the process that sends
-- ARGV[3] sequence — integer: number of this writer's batch; a retry keeps it
-- ARGV[4] clock — "server" or "event"
-- ARGV[5] length — seconds: length of a slot
-- ARGV[6] current — seconds: the board's newest slot by the plan; '' for none yet
-- ARGV[7] reached — seconds: the newest slot after the batch
-- ARGV[8] latest — milliseconds: newest event time in the batch; '' for none
-- ARGV[9] future — milliseconds: how far `latest` may be ahead of the store's clock
-- ARGV[10] channel — string: where the change is announced
-- ARGV[11] bucket — seconds: start of the newest bucket of identities by the plan
-- ARGV[12] span — seconds: length of a bucket
-- ARGV[13] buckets — integer: number of seen keys; 0 when no event has an identity
-- ARGV[14] n — integer: number of identities
-- ARGV[15...] identities — 16 bytes each, distinct
-- ARGV[...] groups — for each slot key: start (seconds), n, then n members, distinct, then n amounts
-- Returns {'ok', offset} — also for a batch that was applied before
--         {'epoch', epoch} — the board lives another life; '' for none
--         {'stale'} — a later batch of this writer has been applied
--         {'replan', current, now, bucket} — the plan does not fit the board's clock; now in milliseconds
--         {'nothing'} — the plan fits, and adds nothing: all of the batch is refused
--         {'seen', i...} — these identities, from 1, were counted before: plan again without them
--         {'full'} — the volume would exceed 2^53
local ranking, meta, slots, writers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, writer, sequence, clock, length = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local current, reached, latest, future, channel = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local span, buckets, identities = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local MAX = 9007199254740992
local call, abs, tonumber, unpack = redis.call, math.abs, tonumber, unpack  -- locals are found faster

local function digits(number)
  return string.format('%.0f', number)
end

local state = call('HMGET', meta, 'epoch', 'newest', 'offset', 'total', 'volume', 'bucket')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end

local last = call('HGET', writers, writer)
if last then
  local done, offset = string.match(last, '^(%d+) (%d+)')
  if done == sequence then return {'ok', offset} end
  if tonumber(done) > tonumber(sequence) then return {'stale'} end
end

local time = call('TIME')
local seconds = tonumber(time[1])
local now = seconds * 1000 + math.floor(tonumber(time[2]) / 1000)
local newest = state[2] or ''
if clock == 'server' then
  local slot = math.floor(seconds / length) * length
  if newest == '' or slot > tonumber(newest) then newest = digits(slot) end
end
-- A bucket, too, never goes backward: an identity that was put into a later one would be overlooked.
local bucket = math.max(math.floor(seconds / span) * span, tonumber(state[6] or 0))
if newest ~= current or (latest and latest > now + future) or (buckets > 0 and bucket ~= tonumber(ARGV[11])) then
  return {'replan', newest, digits(now), digits(bucket)}
end

local slot_keys = 4 + buckets
if #KEYS == slot_keys then return {'nothing'} end

local known = {}
for i = 5, 3 + buckets do
  if call('EXISTS', KEYS[i]) == 1 then
    local marks = call('SMISMEMBER', KEYS[i], unpack(ARGV, 15, 14 + identities))
    for j = 1, identities do
      if marks[j] == 1 then known[#known + 1] = j end
    end
  end
end
if #known > 0 then return {'seen', unpack(known)} end

local groups, position = {}, 15 + identities
local volume, total = tonumber(state[5]), tonumber(state[4])
for group = 1, #KEYS - slot_keys do
  local first, n = position + 1, tonumber(ARGV[position + 1])
  local last = first + n
  local values, amounts = call('HMGET', KEYS[slot_keys + group], unpack(ARGV, first + 1, last)), {}
  for i = 1, n do
    local old, amount = tonumber(values[i] or 0), tonumber(ARGV[last + i])
    if (amount > 0 and old > MAX - amount) or (amount < 0 and old < -MAX - amount) then return {'full'} end
    local value = old + amount
    local change = abs(value) - abs(old)
    if change > MAX - volume then return {'full'} end
    volume = volume + change
    values[i], amounts[i] = value, amount
  end
  groups[group] = {first, n, amounts, values}
  position = last + n + 1
end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local offset = digits(tonumber(state[3]) + 1)
call('PUBLISH', channel, epoch .. ':' .. offset)
for group = 1, #groups do
  local first, n, amounts, values = unpack(groups[group])
  local slot = KEYS[slot_keys + group]
  local scores = call('ZMSCORE', ranking, unpack(ARGV, first + 1, first + n))
  local held, emptied, ranked, dropped = {}, {}, {}, {}
  local h, e, r, d = 0, 0, 0, 0
  for i = 1, n do
    local member, amount, value = ARGV[first + i], amounts[i], values[i]
    total = total + amount
    if value == 0 then
      e = e + 1
      emptied[e] = member
    else
      held[h + 1], held[h + 2] = member, value
      h = h + 2
    end
    local score = tonumber(scores[i] or 0) + amount
    if score == 0 then
      d = d + 1
      dropped[d] = member
    else
      ranked[r + 1], ranked[r + 2] = score, member
      r = r + 2
    end
  end
  if h > 0 then
    call('HSET', slot, unpack(held))
    call('ZADD', slots, ARGV[first - 1], ARGV[first - 1])
  end
  if e > 0 then call('HDEL', slot, unpack(emptied)) end
  if r > 0 then call('ZADD', ranking, unpack(ranked)) end
  if d > 0 then call('ZREM', ranking, unpack(dropped)) end
end

if buckets > 0 then
  if call('EXISTS', KEYS[5]) == 0 then
    call('UNLINK', KEYS[4 + buckets])
    call('HSET', meta, 'bucket', digits(bucket))
  end
  call('SADD', KEYS[5], unpack(ARGV, 15, 14 + identities))
  call('EXPIREAT', KEYS[5], digits(bucket + (buckets + 1) * span))  -- should no later bucket ever come to replace it
end
call('HSET', meta, 'newest', reached, 'offset', offset, 'total', digits(total), 'volume', digits(volume))
call('HSET', writers, writer, sequence .. ' ' .. offset .. ' ' .. time[1])
return {'ok', offset}

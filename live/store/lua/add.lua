-- Adds a batch to the ranking and to its slots, as planned, or changes nothing and says why not.
--
-- Everything is checked before the first write: nothing after it can fail. Numbers are whole and within ±2^53: the
-- board's volume, the sum of all |value| in its slots, never exceeds 2^53, so no sum of any of them does either.
-- KEYS[1] ranking — sorted set: member, score
-- KEYS[2] meta — hash: the board's state
-- KEYS[3] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[4] writers — hash: writer, "sequence offset seconds" of its last batch
-- KEYS[5...] slot — hashes of the slots that the batch adds to
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
-- ARGV[11...] groups — for each slot key: start (seconds), n, then n times member, amount; members are distinct
-- Returns {'ok', offset} — also for a batch that was applied before
--         {'epoch', epoch} — the board lives another life; '' for none
--         {'stale'} — a later batch of this writer has been applied
--         {'replan', current, now} — the plan does not fit the board's clock; now in milliseconds
--         {'full'} — the volume would exceed 2^53
local ranking, meta, slots, writers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, writer, sequence, clock, length = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local current, reached, latest, future, channel = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local MAX = 9007199254740992

local function digits(number)
  return string.format('%.0f', number)
end

local state = redis.call('HMGET', meta, 'epoch', 'newest', 'offset', 'total', 'volume')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end

local last = redis.call('HGET', writers, writer)
if last then
  local done, offset = string.match(last, '^(%d+) (%d+)')
  if done == sequence then return {'ok', offset} end
  if tonumber(done) > tonumber(sequence) then return {'stale'} end
end

local time = redis.call('TIME')
local seconds = tonumber(time[1])
local now = seconds * 1000 + math.floor(tonumber(time[2]) / 1000)
local newest = state[2] or ''
if clock == 'server' then
  local slot = math.floor(seconds / length) * length
  if newest == '' or slot > tonumber(newest) then newest = digits(slot) end
end
if newest ~= current or (latest and latest > now + future) then
  return {'replan', newest, digits(now)}
end

local groups, position = {}, 11
local volume, total = tonumber(state[5]), tonumber(state[4])
local grown = 0
for group = 1, #KEYS - 4 do
  local members, amounts, changes, n = {}, {}, {}, tonumber(ARGV[position + 1])
  for i = 1, n do
    members[i], amounts[i] = ARGV[position + 2 * i], tonumber(ARGV[position + 2 * i + 1])
  end
  local values = redis.call('HMGET', KEYS[4 + group], unpack(members))
  for i = 1, n do
    local old, amount = tonumber(values[i] or 0), amounts[i]
    if (amount > 0 and old > MAX - amount) or (amount < 0 and old < -MAX - amount) then return {'full'} end
    values[i] = old + amount
    local change = math.abs(values[i]) - math.abs(old)
    if change > 0 then
      if change > MAX - volume - grown then return {'full'} end
      grown = grown + change
    end
    changes[i] = change
  end
  groups[group] = {members, amounts, changes, values, ARGV[position]}
  position = position + 2 + 2 * n
end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local offset = digits(tonumber(state[3]) + 1)
redis.call('PUBLISH', channel, epoch .. ':' .. offset)
for group = 1, #groups do
  local members, amounts, changes, values, start = unpack(groups[group])
  local slot = KEYS[4 + group]
  local scores = redis.call('ZMSCORE', ranking, unpack(members))
  local held, emptied, ranked, dropped = {}, {}, {}, {}
  for i = 1, #members do
    local member, amount = members[i], amounts[i]
    volume, total = volume + changes[i], total + amount
    if values[i] == 0 then
      emptied[#emptied + 1] = member
    else
      held[#held + 1] = member
      held[#held + 1] = digits(values[i])
    end
    local score = tonumber(scores[i] or 0) + amount
    if score == 0 then
      dropped[#dropped + 1] = member
    else
      ranked[#ranked + 1] = digits(score)
      ranked[#ranked + 1] = member
    end
  end
  if #held > 0 then
    redis.call('HSET', slot, unpack(held))
    redis.call('ZADD', slots, start, start)
  end
  if #emptied > 0 then redis.call('HDEL', slot, unpack(emptied)) end
  if #ranked > 0 then redis.call('ZADD', ranking, unpack(ranked)) end
  if #dropped > 0 then redis.call('ZREM', ranking, unpack(dropped)) end
end

redis.call('HSET', meta, 'newest', reached, 'offset', offset, 'total', digits(total), 'volume', digits(volume))
redis.call('HSET', writers, writer, sequence .. ' ' .. offset .. ' ' .. time[1])
return {'ok', offset}

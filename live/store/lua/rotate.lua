-- Subtracts one bounded piece of the oldest slot, if that slot has left the window.
--
-- A field that is still in the slot has not been subtracted: the slot is the record of its own progress. So any number
-- of rotators may run at once, and any of them may die between two steps.
-- KEYS[1] ranking — sorted set: member, score
-- KEYS[2] meta — hash: the board's state
-- KEYS[3] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[4] slot — hash: the slot that the caller takes for the oldest
-- ARGV[1] epoch — string: the epoch that the caller knows
-- ARGV[2] clock — "server" or "event"
-- ARGV[3] length — seconds: length of a slot
-- ARGV[4] window — seconds: length of the window
-- ARGV[5] start — seconds: start of KEYS[4]; '' when the caller does not know the oldest
-- ARGV[6] cursor — string: what the last step on this slot returned, or '0'; a lost one costs a pass, not correctness
-- ARGV[7] count — integer: about how many fields to subtract
-- ARGV[8] channel — string: where the change is announced
-- Returns {'idle', wait} — nothing is due; wait is milliseconds until something can be, -1 when only an event can tell
--         {'slot', start} — this slot is the oldest: call again with it
--         {'moved', n, cursor} — n fields were subtracted; call again
--         {'epoch', epoch} — the board lives another life; '' for none
local ranking, meta, slots, slot = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, clock, length, window = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local start, cursor, count, channel = ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]

local function digits(number)
  return string.format('%.0f', number)
end

local state = redis.call('HMGET', meta, 'epoch', 'newest', 'offset', 'total', 'volume')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end

local newest, wait = tonumber(state[2]), -1
if clock == 'server' then
  local time = redis.call('TIME')
  local seconds = tonumber(time[1])
  local current = math.floor(seconds / length) * length
  wait = (current + length - seconds) * 1000 - math.floor(tonumber(time[2]) / 1000)
  if not newest or current > newest then newest = current end
end
local oldest = redis.call('ZRANGE', slots, 0, 0)[1]
if not oldest or not newest or tonumber(oldest) >= newest - window then return {'idle', digits(wait)} end
if oldest ~= start then return {'slot', oldest} end

local scan = redis.call('HSCAN', slot, cursor, 'COUNT', count)
local fields, seen, members, values = scan[2], {}, {}, {}
local most = #fields / 2
if most > 2 * count then  -- a small hash is scanned whole whatever the count: take a piece, and scan it again
  most, scan[1] = count, cursor
end
for i = 1, 2 * most, 2 do
  if not seen[fields[i]] then
    seen[fields[i]] = true
    members[#members + 1], values[#values + 1] = fields[i], tonumber(fields[i + 1])
  end
end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local offset = digits(tonumber(state[3]) + 1)
redis.call('PUBLISH', channel, epoch .. ':' .. offset)
local total, volume = tonumber(state[4]), tonumber(state[5])
if #members > 0 then
  local scores = redis.call('ZMSCORE', ranking, unpack(members))
  local ranked, dropped = {}, {}
  for i = 1, #members do
    total, volume = total - values[i], volume - math.abs(values[i])
    local score = tonumber(scores[i] or 0) - values[i]
    if score == 0 then
      dropped[#dropped + 1] = members[i]
    else
      ranked[#ranked + 1] = digits(score)
      ranked[#ranked + 1] = members[i]
    end
  end
  redis.call('HDEL', slot, unpack(members))
  if #ranked > 0 then redis.call('ZADD', ranking, unpack(ranked)) end
  if #dropped > 0 then redis.call('ZREM', ranking, unpack(dropped)) end
end
if redis.call('EXISTS', slot) == 0 then redis.call('ZREM', slots, start) end

redis.call('HSET', meta, 'newest', digits(newest), 'offset', offset, 'total', digits(total), 'volume', digits(volume))
return {'moved', digits(#members), scan[1]}

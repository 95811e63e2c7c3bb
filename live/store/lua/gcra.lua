#!lua
-- Lends credit for events to a process, at the rate of a producer (GCRA, the generic cell rate algorithm).
--
-- The store key holds the time at which the next event would be due if events came evenly, and when that was written. A
-- producer is ahead of its rate while the due time is in the future; its burst says how far ahead it may be. When the
-- due time has passed, the store key has expired and the whole burst is free. A clock that is set back does not put a
-- producer further ahead.
-- KEYS due — string: two times in microseconds since 1970, with a space between
-- Request: CreditRequest
-- Returns {lent, ahead, wait} — lent: the number of events; ahead: microseconds until the last of them is due; wait:
--         microseconds until it makes sense to ask again, 0 when every request got its event
local rate, burst, debt, need, spare = request.rate, request.burst, request.debt, request.need, request.spare

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local pause = 1000000 / rate  -- microseconds between two events that come evenly
local held, written = string.match(redis.call('GET', due) or '0 0', '^(%S+) (%S+)$')
local ahead = math.max(0, tonumber(held or 0) - math.max(now, tonumber(written or 0))) + debt * pause
local left = math.floor(burst - ahead / pause + 0.000001)  -- not exact, because the store keeps rounded times

local lent, wait = math.max(0, math.min(need, left)), 0
if left >= need then lent = lent + math.max(0, math.min(spare, math.floor((left - need) / 4))) end
ahead = ahead + lent * pause
if left < math.max(1, need) then
  wait = math.max(1, math.ceil(ahead - (burst - math.max(1, math.min(spare, burst))) * pause))
end
if ahead > 0 then
  local expiry = math.ceil(ahead / 1000) + 1  -- `PX` counts from the last whole millisecond
  redis.call('SET', due, string.format('%.2f %.0f', now + ahead, now), 'PX', string.format('%.0f', expiry))
end
return {string.format('%.0f', lent), string.format('%.2f', ahead), string.format('%.0f', wait)}

#!lua flags=allow-oom
-- Subtracts one bounded piece of the oldest slot, if that slot has left the window.
--
-- A field that is still in the slot has not been subtracted: the slot is the record of its own progress. So any number
-- of rotators may run at once, and any of them may die between two steps.
-- KEYS[1] ranking — sorted set: name, score
-- KEYS[2] reached — hash: member, tag
-- KEYS[3] levels — sorted set: each score there is
-- KEYS[4] meta — hash: the board's state
-- KEYS[5] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[6] slot — hash: the slot that the caller takes for the oldest
-- KEYS[7] hidden — hash: members that have no rank
-- ARGV[1] epoch — string: the epoch that the caller knows
-- ARGV[2] clock — "server" or "event"
-- ARGV[3] current — seconds: the board's newest slot by the caller; '' for none yet
-- ARGV[4] till — milliseconds: the end of that slot; '' for ever
-- ARGV[5] kept — seconds: start of the oldest slot that stays
-- ARGV[6] start — seconds: start of KEYS[6]; '' when the caller does not know the oldest
-- ARGV[7] cursor — string: what the last step on this slot returned, or '0'; a lost one costs a pass, not correctness
-- ARGV[8] count — integer: about how many fields to subtract
-- ARGV[9] channel — string: where the change is announced
-- ARGV[10] ties — "key", or "rising" or "falling" where names have tags
-- ARGV[11] ranks — "dense" to keep the levels
-- Returns {'idle', wait} — nothing is due; wait is milliseconds until something can be, -1 when only an event can tell
--         {'slot', start} — this slot is the oldest: call again with it
--         {'moved', n, cursor} — n fields were subtracted; call again
--         {'epoch', epoch} — the board lives another life; '' for none
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--@include clock
local ranking, reached, levels, meta, slots, slot = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local hidden = KEYS[7]
local epoch, clock, current, till, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local start, cursor, count, channel, ties, ranks = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]

local state = redis.call('HMGET', meta, 'epoch', 'newest', 'offset', 'latest')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end
local newest = state[2] or ''
if not fits(clock, current, newest, nil, till) then return {'replan', newest, digits(now), state[4] or ''} end

local oldest = redis.call('ZRANGE', slots, 0, 0)[1]
if not oldest or current == '' or tonumber(oldest) >= kept then
  return {'idle', clock == 'server' and till ~= '' and digits(tonumber(till) - now) or '-1'}
end
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
--@include total
--@include subtract
if #members > 0 then
  redis.call('HDEL', slot, unpack(members))
  subtract(members, values)
end
if redis.call('EXISTS', slot) == 0 then redis.call('ZREM', slots, start) end

redis.call('HSET', meta, 'newest', current, 'offset', offset)
return {'moved', digits(#members), scan[1]}

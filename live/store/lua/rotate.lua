#!lua flags=allow-oom
-- Subtracts one bounded piece of the oldest slot, if that slot has left the window.
--
-- A field in the slot has not been subtracted yet: the slot records its own progress. So any number of rotators may run
-- at once, and any of them may stop between two steps.
-- KEYS ranking, reached, levels, meta, slots
-- KEYS slot — hash: the oldest slot, as the caller believes
-- KEYS hidden, journal
-- KEYS others... — if a sum of zero is a score: the other slots, in the order of their starts
-- Request: RotateRequest
-- Returns {'moved', n, cursor} — the script subtracted n fields: call it again
--@include journal
local rules = request.rules
--@include subtract
--@include due
--@include same_slots
--@include ruled
refusal = not_due(board)
if refusal then return refusal end
told_from = 1000 * request.kept
if not zero_is_none and not same_slots(request.starts or {}) then return {'slots'} end

local function held(members)  -- whether another slot has each member
  local found = {}
  for key = 9, #KEYS do
    local values = call('HMGET', KEYS[key], unpack(members))
    for i = 1, #members do found[i] = found[i] or values[i] end
  end
  return found
end

local count = request.count
local scan = call('HSCAN', slot, request.cursor, 'COUNT', count)
local fields, seen, members, values = scan[2], {}, {}, {}
local most = #fields / 2
if most > 2 * count then  -- HSCAN returns all of a small hash, whatever the count: take a piece, and scan again
  most, scan[1] = count, request.cursor
end
for i = 1, 2 * most, 2 do
  if not seen[fields[i]] then
    seen[fields[i]] = true
    members[#members + 1], values[#values + 1] = fields[i], tonumber(fields[i + 1])
  end
end

local ranked = {key = ranking, reached = reached, levels = levels, suffix = ''}
local names, old, new = subtracted(ranked, members, values, held)
announce(board)
-- Ask before HDEL: while a Cluster moves a hash slot, commands on missing store keys fail.
local left = call('HLEN', slot) - #members
if #members > 0 then
  call('HDEL', slot, unpack(members))
  put(ranked, board, members, names, old, new)
end
if left == 0 then call('ZREM', slots, request.start) end

record_tags(board, granted)
commit(board, 'newest', request.clock.current)
return {'moved', digits(#members), scan[1]}

-- Compares a ranking with its slots for some members, all at one instant; on demand sets right what differs.
-- KEYS[1] ranking — sorted set: name, score
-- KEYS[2] reached — hash: member, tag
-- KEYS[3] levels — sorted set: each score there is
-- KEYS[4] meta — hash: the board's state
-- KEYS[5] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[6] hidden — hash: members that have no rank
-- KEYS[7...] slot — hashes of all slots of the ranking, in the order of their starts
-- ARGV[1] repair — "1" to give the ranking the sum of the slots, "0" to look only
-- ARGV[2] channel — string: where a repair is announced
-- ARGV[3] ties — "key", or "rising" or "falling" where names have tags
-- ARGV[4] ranks — "dense" to keep the levels
-- ARGV[5] operator — "incr", or one by which a score of zero is a record
-- ARGV[6] tables — "1" when each slot has a ranking of its own
-- ARGV[7...] rest — the start (seconds) of each slot key, then the members, distinct
-- Returns {'ok', offset, ranked, {sum, ...}, member, score, held, ...}: the number of records among these members, and what
--         the slots hold of the ranked ones, in sums that are exact each; then each member whose score differs from what
--         the slots hold ('' for no record, or for nothing held)
--         {'slots'} — slots have come or gone: ask again with the keys that there are
--@include clock
local ranking, reached, levels, meta, slots, hidden = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local repair, channel, ties, ranks, operator, tables = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local rest, slot_keys = 7, #KEYS - 6

if tables == '1' then
  if not redis.call('ZSCORE', slots, ARGV[rest]) then return {'slots'} end
else
  local starts = redis.call('ZRANGE', slots, 0, -1)
  if #starts ~= slot_keys then return {'slots'} end
  for i = 1, #starts do
    if starts[i] ~= ARGV[rest + i - 1] then return {'slots'} end
  end
end

local offset = redis.call('HGET', meta, 'offset') or '0'
local members = {}
for i = rest + slot_keys, #ARGV do members[#members + 1] = ARGV[i] end
if #members == 0 then return {'ok', offset, '0', {}} end
local sums = {}
for key = 7, #KEYS do
  local values = redis.call('HMGET', KEYS[key], unpack(members))
  for i = 1, #members do
    local value = values[i] and tonumber(values[i])
    if value then sums[i] = (sums[i] or 0) + value end
  end
end

local names = members
if ties ~= 'key' then
  names = redis.call('HMGET', reached, unpack(members))
  for i = 1, #members do names[i] = names[i] and names[i] .. members[i] or '' end
end
local scores = redis.call('ZMSCORE', ranking, unpack(names))

local function mend(i, held)
  local name, old = names[i], scores[i]
  if not held then
    if name ~= '' then redis.call('ZREM', ranking, name) end
    redis.call('HDEL', reached, members[i])
  else
    if name == '' then
      local tag = struct.pack('>I5I3', ties == 'falling' and 1099511627775 - tonumber(offset) or tonumber(offset), i)
      redis.call('HSET', reached, members[i], tag)
      name = tag .. members[i]
    end
    redis.call('ZADD', ranking, digits(held), name)
    if ranks == 'dense' then redis.call('ZADD', levels, digits(held), digits(held)) end
  end
  if ranks == 'dense' and old and redis.call('ZCOUNT', ranking, old, old) == 0 then redis.call('ZREM', levels, old) end
end

local unseen = redis.call('HMGET', hidden, unpack(members))
local ranked, sum, exact, drift = 0, 0, {}, {}
for i = 1, #members do
  local held = sums[i]
  if unseen[i] or (held == 0 and operator == 'incr') then held = nil end
  if math.abs(sum + (held or 0)) > 9007199254740991 then
    exact[#exact + 1] = digits(sum)
    sum = 0
  end
  sum = sum + (held or 0)
  local score = scores[i] and tonumber(scores[i]) or nil
  if score then ranked = ranked + 1 end
  if score ~= held then
    drift[#drift + 1] = members[i]
    drift[#drift + 1] = score and digits(score) or ''
    drift[#drift + 1] = digits(held or 0)
    if repair == '1' then mend(i, held) end
  end
end

if repair == '1' and #drift > 0 then
  offset = digits(redis.call('HINCRBY', meta, 'offset', 1))
  redis.call('PUBLISH', channel, redis.call('HGET', meta, 'epoch') .. ':' .. offset)
end
exact[#exact + 1] = digits(sum)
return {'ok', offset, digits(ranked), exact, unpack(drift)}

-- Adds a batch to its slots and to the rankings, as planned, or changes nothing and says why not.
--
-- Everything is checked before the first write: nothing after it can fail. Numbers are whole and exact: a member's value
-- in a slot is within ±most, so that no sum over the slots that there can be leaves ±2^53. What an event says of itself,
-- or its board of its state, comes after the question whether it was counted before.
-- Where ties go by time, a name in the ranking is the member with a tag of 8 bytes before it: when it reached its score.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[3] writers — hash: writer, "sequence offset seconds" of its last batch
-- KEYS[4] log — sorted set: the events of a sliding window, scored by their time (ms)
-- KEYS[5] taken — hash: member, sum of its amounts in the log that are below zero, without the sign
-- KEYS[6] entrants — hash: the members that may be counted, if not all may
-- KEYS[7...] seen — sets of identities, newest bucket first, and last the one to forget; as many as ARGV[12] says
-- KEYS[...] groups — for each slot that the batch adds to: slot (hash: member, value), then of its table: ranking
--         (sorted set: name, score), reached (hash: member, tag), levels (sorted set: each score there is), metadata
--         (hash: member, JSON), votes (hash: who has voted, how often), and last hidden (hash: members
--         that have no rank)
-- ARGV[1] epoch — string: the epoch that the caller knows
-- ARGV[2] writer — string: the process that sends
-- ARGV[3] sequence — integer: number of this writer's batch; a retry keeps it
-- ARGV[4] clock — "server" or "event"
-- ARGV[5] current — seconds: the board's newest slot by the plan; '' for none yet
-- ARGV[6] till — milliseconds: the plan holds before this time of the board; '' for ever
-- ARGV[7] reached_slot — seconds: the newest slot after the batch
-- ARGV[8] latest — milliseconds: newest event time in the batch; '' for none
-- ARGV[9] future — milliseconds: how far `latest` may be ahead of the store's clock
-- ARGV[10] channel — string: where the change is announced
-- ARGV[11] bucket — seconds: start of the newest bucket of identities by the plan
-- ARGV[12] buckets — integer: number of seen keys; 0 when no event has an identity
-- ARGV[13] span — seconds: length of a bucket
-- ARGV[14] operator — "incr", "set", "max" or "min": how an amount changes a value
-- ARGV[15] ties — "key"; "rising" or "falling": tags, too, grow or shrink with time
-- ARGV[16] ranks — "dense" to keep the levels
-- ARGV[17] summed — "1" to keep the sum of all scores; '' for scores that are no amounts
-- ARGV[18] cap — integer: most members of a ranking; 0 for any number
-- ARGV[19] order — "forward", "backward" or "turned": how the ranking is read, so which members are its last
-- ARGV[20] most — integer: how far from zero a member's value in a slot may be
-- ARGV[21] most_slots — integer: how many slots there may be, for `most` to be enough; 0 where there is but one
-- ARGV[22] most_members — integer: how many members a slot and a ranking may have
-- ARGV[23] per_key — integer: most votes of an actor for a member; 0 for any number
-- ARGV[24] per_actor — integer: most votes of an actor; 0 for any number
-- ARGV[25] entry — "registered" when only entrants are counted; "open"
-- ARGV[26] n — integer: number of identities
-- ARGV[27] refused — integer: how many of them, the last, are of events that the plan refuses
-- ARGV[28...] identities — 16 bytes each, distinct
-- ARGV[...] groups — for each group of keys: start (seconds), suffix, n, then n members, distinct, n amounts, and where
--         ties go by time n numbers of events (see `Group.orders`); the number of metadata, and for each
--         a member's number and JSON ('' to drop it); the number of votes, and for each actor, pair, and change
-- ARGV[...] events — where there is a log: how many, and for each time (ms; '' for now), amount, member
-- Returns {'ok', offset, widest} — widest is the value farthest from zero in the batch, without its sign
--         {'ok', offset} — the batch was applied before
--         {'epoch', epoch} — the board lives another life; '' for none
--         {'stale'} — a later batch of this writer has been applied
--         {'replan', newest, now, bucket, latest} — the plan does not fit the board's clock; now in milliseconds
--         {'seen', i...} — these identities, from 1, were counted before: plan again without them
--         {'frozen'} — the board takes no events
--         {'nothing'} — the plan fits, and adds nothing: all of the batch is refused
--         {'behind'} — there are too many slots that wait to be subtracted
--         {'unregistered', member...} — these may not be counted
--         {'votes', i, code, ...} — these votes, from 1, are refused: plan again without them
--         {'crowded', start, member, ...} — these are new in these slots, and there is no room for them
--         {'range', start, member, held, ...} — these would leave the range; held is the value there is, in a log the sum
--         of all amounts without their signs
--@include clock
local meta, slots, writers, log, taken, entrants = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local epoch, writer, sequence, clock, current = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local till, reached_slot, latest, future = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local channel, buckets, span = ARGV[10], tonumber(ARGV[12]), tonumber(ARGV[13])
local operator, ties, ranks, summed, cap, order = ARGV[14], ARGV[15], ARGV[16], ARGV[17], tonumber(ARGV[18]), ARGV[19]
local most, most_slots, most_members = tonumber(ARGV[20]), tonumber(ARGV[21]), tonumber(ARGV[22])
local per_key, per_actor, entry = tonumber(ARGV[23]), tonumber(ARGV[24]), ARGV[25]
local identities, counted = tonumber(ARGV[26]), tonumber(ARGV[26]) - tonumber(ARGV[27])
local EXACT = 9007199254740991
local call, abs, tonumber, unpack = redis.call, math.abs, tonumber, unpack  -- locals are found faster

local state = call('HMGET', meta, 'epoch', 'newest', 'offset', 'bucket', 'latest', 'frozen', 'made')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end

local last = call('HGET', writers, writer)
if last then
  local done, offset = string.match(last, '^(%d+) (%d+)')
  if done == sequence then return {'ok', offset} end
  if tonumber(done) > tonumber(sequence) then return {'stale'} end
end

local newest = state[2] or ''
-- A bucket, too, never goes backward: an identity that was put into a later one would be overlooked.
local bucket = math.max(math.floor(seconds / span) * span, tonumber(state[4] or 0))
if not fits(clock, current, newest, state[5], till) or (latest and latest > now + future)
  or (buckets > 0 and bucket ~= tonumber(ARGV[11])) then
  return {'replan', newest, digits(now), digits(bucket), state[5] or ''}
end

local known = {}
for i = 7, 5 + buckets do
  if call('EXISTS', KEYS[i]) == 1 then
    local marks = call('SMISMEMBER', KEYS[i], unpack(ARGV, 28, 27 + identities))
    for j = 1, identities do
      if marks[j] == 1 then known[#known + 1] = j end
    end
  end
end
if #known > 0 then return {'seen', unpack(known)} end
if state[6] then return {'frozen'} end

local keys_before = 6 + buckets
if #KEYS == keys_before then return {'nothing'} end

-- Take the groups apart, and work out what each slot is to hold.
local groups, position, coming = {}, 28 + identities, {}
local unregistered, refused, vote_number = {}, {}, 0
local widest, crowded = 0, false

local function vote(held, room, actor, pair, change)
  vote_number = vote_number + 1
  local new = (held[actor] and 0 or 1) + (held[pair] and 0 or 1)
  local mine, its = (held[actor] or 0) + change, (held[pair] or 0) + change
  if change > 0 and ((per_actor > 0 and mine > per_actor) or (per_key > 0 and its > per_key)) then
    refused[#refused + 1] = vote_number
    refused[#refused + 1] = 'quota_exceeded'
  elseif its < 0 then
    refused[#refused + 1] = vote_number
    refused[#refused + 1] = 'vote_missing'
  elseif new > room then
    refused[#refused + 1] = vote_number
    refused[#refused + 1] = 'board_full'
  else
    held[actor], held[pair] = mine, its
    return room - new
  end
  return room
end

for at = keys_before + 1, #KEYS, 7 do
  local start, suffix, n = ARGV[position], ARGV[position + 1], tonumber(ARGV[position + 2])
  local first = position + 2
  local last = first + n
  local values, olds, amounts = call('HMGET', KEYS[at], unpack(ARGV, first + 1, last)), {}, {}
  for i = 1, n do
    local held, amount = values[i], tonumber(ARGV[last + i])
    local old = held and tonumber(held)
    local value = amount
    if operator == 'incr' then
      value = (old or 0) + amount
    elseif held and ((operator == 'max' and old >= amount) or (operator == 'min' and old <= amount)) then
      value = old
    end
    if value > widest then widest = value elseif -value > widest then widest = -value end
    values[i], amounts[i], olds[i] = value, amount, old
  end
  coming[suffix] = (coming[suffix] or 0) + n
  if call('HLEN', KEYS[at]) + n > most_members or call('ZCARD', KEYS[at + 1]) + coming[suffix] > most_members then
    crowded = true
  end
  position = last + n
  local orders = position
  if ties ~= 'key' then position = position + n end
  local metadata = position + 1
  position = metadata + 2 * tonumber(ARGV[metadata]) + 1
  local held = {}
  local votes = tonumber(ARGV[position])
  if votes > 0 then
    local fields = {}
    for i = position + 1, position + 3 * votes, 3 do
      fields[#fields + 1] = ARGV[i]
      fields[#fields + 1] = ARGV[i + 1]
    end
    local counts = call('HMGET', KEYS[at + 5], unpack(fields))
    for i = 1, #fields do held[fields[i]] = counts[i] and tonumber(counts[i]) end
    local room = 10 * most_members - call('HLEN', KEYS[at + 5])  -- an actor and its pairs are a field each
    for i = position + 1, position + 3 * votes, 3 do
      room = vote(held, room, ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]))
    end
  end
  position = position + 3 * votes + 1
  if entry == 'registered' then
    local found = call('HMGET', entrants, unpack(ARGV, first + 1, last))
    for i = 1, n do
      if not found[i] then unregistered[#unregistered + 1] = ARGV[first + i] end
    end
  end
  groups[#groups + 1] = {at, start, suffix, first, n, orders, metadata, amounts, values, held, olds}
end
if #unregistered > 0 then return {'unregistered', unpack(unregistered)} end
if #refused > 0 then return {'votes', unpack(refused)} end

if most_slots > 0 then
  local slots_after = call('ZCARD', slots) + #groups
  for group = 1, slots_after > most_slots and #groups or 0 do
    if call('ZSCORE', slots, groups[group][2]) then slots_after = slots_after - 1 end
  end
  if slots_after > most_slots then return {'behind'} end
end

-- The members for which there is no room: those that neither the slot nor the ranking has, beyond the first few.
local function turned_away()
  local away, admitted, taken_in = {}, {}, {}
  for group = 1, #groups do
    local at, start, suffix, first, n, _, _, _, _, _, olds = unpack(groups[group])
    local here = ties == 'key' and call('ZMSCORE', KEYS[at + 1], unpack(ARGV, first + 1, first + n))
      or call('HMGET', KEYS[at + 2], unpack(ARGV, first + 1, first + n))
    local ranked, held = call('ZCARD', KEYS[at + 1]) + (taken_in[suffix] or 0), call('HLEN', KEYS[at])
    for i = 1, n do
      local member = ARGV[first + i]
      if not olds[i] and not here[i] and not admitted[suffix .. ' ' .. member] then
        if ranked < most_members and held < most_members then
          admitted[suffix .. ' ' .. member] = true
          taken_in[suffix] = (taken_in[suffix] or 0) + 1
          ranked, held = ranked + 1, held + 1
        else
          away[#away + 1] = start
          away[#away + 1] = member
        end
      end
    end
  end
  return away
end
if crowded then
  local away = turned_away()
  if #away > 0 then return {'crowded', unpack(away)} end
end

-- Amounts that leave a log one by one add up to no more than all of them without their signs.
local events = tonumber(ARGV[position] or 0)
local below, below_now = {}, {}
local function look_at_log()
  local _, _, _, first, n, _, _, _, values = unpack(groups[1])
  for i = position + 1, position + 3 * events, 3 do
    if string.byte(ARGV[i + 1]) == 45 then  -- a minus
      below_now[ARGV[i + 2]] = (below_now[ARGV[i + 2]] or 0) - tonumber(ARGV[i + 1])
    end
  end
  if not next(below_now) and call('EXISTS', taken) == 0 then return end
  below = call('HMGET', taken, unpack(ARGV, first + 1, first + n))
  for i = 1, n do
    local all = values[i] + 2 * (tonumber(below[i] or 0) + (below_now[ARGV[first + i]] or 0))
    if all > widest then widest = all end
  end
end
if events > 0 then look_at_log() end

local function out_of_range()  -- the members that are, each with its slot and what is held
  local out = {'range'}
  for group = 1, #groups do
    local _, start, _, first, n, _, _, _, values, _, olds = unpack(groups[group])
    for i = 1, n do
      local held = (olds[i] or 0) + 2 * tonumber(below[i] or 0)
      local all = values[i] + 2 * (tonumber(below[i] or 0) + (below_now[ARGV[first + i]] or 0))
      if abs(values[i]) > most or all > most then
        out[#out + 1], out[#out + 2], out[#out + 3] = start, ARGV[first + i], digits(held)
      end
    end
  end
  return out
end
if widest > most then return out_of_range() end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local number = tonumber(state[3]) + 1
local offset = digits(number)
call('PUBLISH', channel, epoch .. ':' .. offset)

local function tag(event)
  if ties == 'falling' then return struct.pack('>I5I3', 1099511627775 - number, 16777215 - event) end
  return struct.pack('>I5I3', number, event)
end

-- The score below which nothing new gets into a full ranking of best values, as none that is there leaves by itself;
-- most of a batch need not be added, then, to be cut off. Signed so that more is better; nil when everything gets in.
local sign = order == 'forward' and -1 or 1
local function threshold(ranking)
  if cap == 0 or operator == 'set' or call('ZCARD', ranking) < cap then return end
  return sign * tonumber(call(order == 'forward' and 'ZREVRANGE' or 'ZRANGE', ranking, 0, 0, 'WITHSCORES')[2])
end

--@include total
--@include cut

for group = 1, #groups do
  local at, start, suffix, first, n, orders, metadata_at, amounts, values, voters, olds = unpack(groups[group])
  local slot, ranking, reached, levels, metadata = KEYS[at], KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4]
  local scores, names
  if ties == 'key' then
    scores = call('ZMSCORE', ranking, unpack(ARGV, first + 1, first + n))
  else
    names = call('HMGET', reached, unpack(ARGV, first + 1, first + n))
    for i = 1, n do names[i] = names[i] and names[i] .. ARGV[first + i] or '' end
    scores = call('ZMSCORE', ranking, unpack(names))
  end
  local hidden = call('EXISTS', KEYS[at + 6]) == 1
  hidden = hidden and call('HMGET', KEYS[at + 6], unpack(ARGV, first + 1, first + n)) or {}
  local held, emptied, ranked, dropped, tags, untagged, changed, gone = {}, {}, {}, {}, {}, {}, {}, {}
  local h, e, r, d, gained = 0, 0, 0, 0, 0
  local least = threshold(ranking)
  for i = 1, n do
    local member, value = ARGV[first + i], values[i]
    local old = scores[i] and tonumber(scores[i])
    local score = operator == 'incr' and (old or 0) + amounts[i] or value
    if not least or old or hidden[i] or sign * score >= least then
      if summed == '1' and not hidden[i] then
        local change = operator == 'incr' and amounts[i] or score - (old or 0)
        if change > EXACT or change < -EXACT then  -- one after the other, each of which is exact
          grow(suffix, -(old or 0))
          change = score
        end
        local grown = gained + change
        if grown > EXACT or grown < -EXACT then
          grow(suffix, gained)
          grown = change
        end
        gained = grown
      end
      if value == 0 and operator == 'incr' then
        e = e + 1
        emptied[e] = member
      else
        held[h + 1], held[h + 2] = member, value
        h = h + 2
      end
      if hidden[i] then
        local event = ties == 'key' and 0 or tonumber(ARGV[orders + i])
        if event < 0 or (event > 0 and value ~= olds[i]) then  -- it keeps its place among ties
          local t = #tags
          tags[t + 1], tags[t + 2] = member, tag(abs(event))
        end
      elseif score == 0 and operator == 'incr' then
        d = d + 1
        dropped[d] = names and names[i] or member
        if names then untagged[d] = member end
      elseif ties == 'key' then
        ranked[r + 1], ranked[r + 2] = score, member
        r = r + 2
      else
        local event = tonumber(ARGV[orders + i])
        if event < 0 or (event > 0 and score ~= old) then
          if old then
            d = d + 1
            dropped[d] = names[i]
          end
          local mark = tag(abs(event))
          local t = #tags
          tags[t + 1], tags[t + 2] = member, mark
          ranked[r + 1], ranked[r + 2] = score, mark .. member
          r = r + 2
        end
      end
      changed[i] = score ~= old
      if hidden[i] then
        changed[i] = value ~= olds[i]
      elseif ranks == 'dense' and score ~= old then
        if old then gone[#gone + 1] = digits(old) end
        if score ~= 0 or operator ~= 'incr' then call('ZADD', levels, digits(score), digits(score)) end
      end
    end
  end
  grow(suffix, gained)
  if h > 0 then
    call('HSET', slot, unpack(held))
    call('ZADD', slots, start, start)
  end
  if e > 0 then call('HDEL', slot, unpack(emptied)) end
  if d > 0 then call('ZREM', ranking, unpack(dropped)) end
  if r > 0 then call('ZADD', ranking, unpack(ranked)) end
  if names then
    if #tags > 0 then call('HSET', reached, unpack(tags)) end
    local left = {}
    for _, member in pairs(untagged) do left[#left + 1] = member end
    if #left > 0 then call('HDEL', reached, unpack(left)) end
  end
  for i = 1, #gone do
    if call('ZCOUNT', ranking, gone[i], gone[i]) == 0 then call('ZREM', levels, gone[i]) end
  end
  for i = metadata_at + 1, metadata_at + 2 * tonumber(ARGV[metadata_at]), 2 do
    local member = tonumber(ARGV[i])
    if changed[member] or operator == 'set' then
      if ARGV[i + 1] == '' then
        call('HDEL', metadata, ARGV[first + member])
      else
        call('HSET', metadata, ARGV[first + member], ARGV[i + 1])
      end
    end
  end
  local cast, withdrawn = {}, {}
  for field, count in pairs(voters) do
    if count == 0 then
      withdrawn[#withdrawn + 1] = field
    else
      cast[#cast + 1] = field
      cast[#cast + 1] = count
    end
  end
  if #cast > 0 then call('HSET', KEYS[at + 5], unpack(cast)) end
  if #withdrawn > 0 then call('HDEL', KEYS[at + 5], unpack(withdrawn)) end
  if cap > 0 then cut(suffix, slot, ranking, reached, levels, metadata) end
end

for member, amount in pairs(below_now) do call('HINCRBY', taken, member, digits(amount)) end
for i = 1, events do
  local time, amount, member = ARGV[position + 3 * i - 2], ARGV[position + 3 * i - 1], ARGV[position + 3 * i]
  call('ZADD', log, time == '' and digits(now) or time, struct.pack('>I5I3', number, i) .. amount .. ' ' .. member)
end

if counted > 0 then
  if call('EXISTS', KEYS[7]) == 0 then
    call('UNLINK', KEYS[6 + buckets])
    call('HSET', meta, 'bucket', digits(bucket))
  end
  call('SADD', KEYS[7], unpack(ARGV, 28, 27 + counted))
  call('EXPIREAT', KEYS[7], digits(bucket + (buckets + 1) * span))  -- should no later bucket ever come to replace it
end
local written = {'newest', reached_slot, 'offset', offset}
if state[7] then  -- a board made at run time may leave when it is not used
  written[#written + 1] = 'used'
  written[#written + 1] = digits(now)
end
if latest and clock == 'event' and latest > tonumber(state[5] or -1e15) then
  written[#written + 1] = 'latest'
  written[#written + 1] = digits(latest)
end
call('HSET', meta, unpack(written))
call('HSET', writers, writer, sequence .. ' ' .. offset .. ' ' .. time[1])
return {'ok', offset, digits(widest)}

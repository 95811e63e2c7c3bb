-- Adds a batch to its slots and to the rankings, as planned, or changes nothing and says why not.
--
-- Everything is checked before the first write: nothing after it can fail. Numbers are whole and within ±2^53: the
-- volume of a table, the sum of all |value| in its slots, never exceeds 2^53, so no sum of any of them does either.
-- Where ties go by time, a name in the ranking is the member with a tag of 8 bytes before it: when it reached its score.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[3] writers — hash: writer, "sequence offset seconds" of its last batch
-- KEYS[4] log — sorted set: the events of a sliding window, scored by their time (ms)
-- KEYS[5] entrants — hash: the members that may be counted, if not all may
-- KEYS[6...] seen — sets of identities, newest bucket first, and last the one to forget; as many as ARGV[12] says
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
-- ARGV[17] summed — "1" to keep the sum of all scores, which bounds them; '' for scores that are no amounts
-- ARGV[18] cap — integer: most members of a ranking; 0 for any number
-- ARGV[19] order — "forward", "backward" or "turned": how the ranking is read, so which members are its last
-- ARGV[20] per_key — integer: most votes of an actor for a member; 0 for any number
-- ARGV[21] per_actor — integer: most votes of an actor; 0 for any number
-- ARGV[22] entry — "registered" when only entrants are counted; "open"
-- ARGV[23] n — integer: number of identities
-- ARGV[24...] identities — 16 bytes each, distinct
-- ARGV[...] groups — for each group of keys: start (seconds), suffix, n, then n members, distinct, n amounts, and where
--         ties go by time n numbers of events (see `Group.orders`); the number of metadata, and for each
--         a member's number and JSON ('' to drop it); the number of votes, and for each actor, pair, and change
-- ARGV[...] events — where there is a log: how many, and for each time (ms; '' for now), amount, member
-- Returns {'ok', offset} — also for a batch that was applied before
--         {'epoch', epoch} — the board lives another life; '' for none
--         {'stale'} — a later batch of this writer has been applied
--         {'replan', newest, now, bucket, latest} — the plan does not fit the board's clock; now in milliseconds
--         {'nothing'} — the plan fits, and adds nothing: all of the batch is refused
--         {'seen', i...} — these identities, from 1, were counted before: plan again without them
--         {'unregistered', member...} — these may not be counted
--         {'votes', i, code, ...} — these votes, from 1, are refused: plan again without them
--         {'full'} — the volume would exceed 2^53
--         {'frozen'} — the board takes no events
--@include clock
local meta, slots, writers, log, entrants = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local epoch, writer, sequence, clock, current = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local till, reached_slot, latest, future = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local channel, buckets, span = ARGV[10], tonumber(ARGV[12]), tonumber(ARGV[13])
local operator, ties, ranks, summed, cap, order = ARGV[14], ARGV[15], ARGV[16], ARGV[17], tonumber(ARGV[18]), ARGV[19]
local per_key, per_actor, entry, identities = tonumber(ARGV[20]), tonumber(ARGV[21]), ARGV[22], tonumber(ARGV[23])
local MAX = 9007199254740992
local call, abs, tonumber, unpack = redis.call, math.abs, tonumber, unpack  -- locals are found faster

local state = call('HMGET', meta, 'epoch', 'newest', 'offset', 'bucket', 'latest', 'total', 'volume', 'frozen', 'made')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end

local last = call('HGET', writers, writer)
if last then
  local done, offset = string.match(last, '^(%d+) (%d+)')
  if done == sequence then return {'ok', offset} end
  if tonumber(done) > tonumber(sequence) then return {'stale'} end
end
if state[8] then return {'frozen'} end

local newest = state[2] or ''
-- A bucket, too, never goes backward: an identity that was put into a later one would be overlooked.
local bucket = math.max(math.floor(seconds / span) * span, tonumber(state[4] or 0))
if not fits(clock, current, newest, state[5], till) or (latest and latest > now + future)
  or (buckets > 0 and bucket ~= tonumber(ARGV[11])) then
  return {'replan', newest, digits(now), digits(bucket), state[5] or ''}
end

local keys_before = 5 + buckets
if #KEYS == keys_before then return {'nothing'} end

local known = {}
for i = 6, 4 + buckets do
  if call('EXISTS', KEYS[i]) == 1 then
    local marks = call('SMISMEMBER', KEYS[i], unpack(ARGV, 24, 23 + identities))
    for j = 1, identities do
      if marks[j] == 1 then known[#known + 1] = j end
    end
  end
end
if #known > 0 then return {'seen', unpack(known)} end

-- Take the groups apart, and work out what each slot is to hold.
local groups, position, sums = {}, 24 + identities, {['']={tonumber(state[6]), tonumber(state[7])}}
local unregistered, refused, vote_number = {}, {}, 0

local function vote(held, actor, pair, change)
  vote_number = vote_number + 1
  local mine, its = held[actor] + change, held[pair] + change
  if change > 0 and ((per_actor > 0 and mine > per_actor) or (per_key > 0 and its > per_key)) then
    refused[#refused + 1] = vote_number
    refused[#refused + 1] = 'quota_exceeded'
  elseif its < 0 then
    refused[#refused + 1] = vote_number
    refused[#refused + 1] = 'vote_missing'
  else
    held[actor], held[pair] = mine, its
  end
end

for at = keys_before + 1, #KEYS, 7 do
  local start, suffix, n = ARGV[position], ARGV[position + 1], tonumber(ARGV[position + 2])
  local first = position + 2
  local last = first + n
  local sum = sums[suffix]
  if not sum then
    local held = call('HMGET', meta, 'total' .. suffix, 'volume' .. suffix)
    sum = {tonumber(held[1] or 0), tonumber(held[2] or 0)}
    sums[suffix] = sum
  end
  local values, olds, amounts = call('HMGET', KEYS[at], unpack(ARGV, first + 1, last)), {}, {}
  local volume = sum[2]
  for i = 1, n do
    local held, amount = values[i], tonumber(ARGV[last + i])
    local old = held and tonumber(held) or 0
    local value = amount
    if operator == 'incr' then
      if (amount > 0 and old > MAX - amount) or (amount < 0 and old < -MAX - amount) then return {'full'} end
      value = old + amount
    elseif held and ((operator == 'max' and old >= amount) or (operator == 'min' and old <= amount)) then
      value = old
    end
    if summed == '1' then
      local change = abs(value) - abs(old)
      if change > MAX - volume then return {'full'} end
      volume = volume + change
    end
    values[i], amounts[i], olds[i] = value, amount, old
  end
  sum[2] = volume
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
    for i = 1, #fields do held[fields[i]] = tonumber(counts[i] or 0) end
    for i = position + 1, position + 3 * votes, 3 do vote(held, ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])) end
  end
  position = position + 3 * votes + 1
  if entry == 'registered' then
    local found = call('HMGET', entrants, unpack(ARGV, first + 1, last))
    for i = 1, n do
      if not found[i] then unregistered[#unregistered + 1] = ARGV[first + i] end
    end
  end
  groups[#groups + 1] = {at, start, sum, first, n, orders, metadata, amounts, values, held, olds}
end
if #unregistered > 0 then return {'unregistered', unpack(unregistered)} end
if #refused > 0 then return {'votes', unpack(refused)} end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local number = tonumber(state[3]) + 1
local offset = digits(number)
call('PUBLISH', channel, epoch .. ':' .. offset)

local function tag(event)
  if ties == 'falling' then return struct.pack('>I5I3', 1099511627775 - number, 16777215 - event) end
  return struct.pack('>I5I3', number, event)
end

local function last_score(ranking)
  return call(order == 'forward' and 'ZREVRANGE' or 'ZRANGE', ranking, 0, 0, 'WITHSCORES')[2]
end

-- The score below which nothing new gets into a full ranking of best values, as none that is there leaves by itself;
-- most of a batch need not be added, then, to be cut off. Signed so that more is better; nil when everything gets in.
local sign = order == 'forward' and -1 or 1
local function threshold(ranking)
  if cap == 0 or operator == 'set' or call('ZCARD', ranking) < cap then return end
  return sign * tonumber(last_score(ranking))
end

local function cut(at, start, sum)  -- the last of a ranking that has too many
  local slot, ranking, reached, levels, metadata = KEYS[at], KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4]
  local excess = call('ZCARD', ranking) - cap
  while excess > 0 do
    local names, score = nil, last_score(ranking)
    if order == 'backward' then
      names = call('ZRANGEBYSCORE', ranking, score, score, 'LIMIT', 0, math.min(excess, 1000))
    else
      names = call('ZREVRANGEBYSCORE', ranking, score, score, 'LIMIT', 0, math.min(excess, 1000))
    end
    local members = names
    if ties ~= 'key' then
      members = {}
      for i = 1, #names do members[i] = string.sub(names[i], 9) end
      call('HDEL', reached, unpack(members))
    end
    call('ZREM', ranking, unpack(names))
    call('HDEL', slot, unpack(members))
    call('HDEL', metadata, unpack(members))
    if ranks == 'dense' and call('ZCOUNT', ranking, score, score) == 0 then call('ZREM', levels, score) end
    excess = excess - #names
    sum[1], sum[2] = sum[1] - tonumber(score) * #names, sum[2] - abs(tonumber(score)) * #names
  end
end

for group = 1, #groups do
  local at, start, sum, first, n, orders, metadata_at, amounts, values, voters, olds = unpack(groups[group])
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
  local h, e, r, d, total = 0, 0, 0, 0, sum[1]
  local least = threshold(ranking)
  for i = 1, n do
    local member, value = ARGV[first + i], values[i]
    local old = scores[i] and tonumber(scores[i])
    local score = operator == 'incr' and (old or 0) + amounts[i] or value
    if least and not old and not hidden[i] and sign * score < least then
      if summed == '1' then sum[2] = sum[2] - abs(score) end
    else
      if not hidden[i] then
        total = total - (old or 0) + score  -- in this order: the sum of the others is exact
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
  sum[1] = total
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
  if cap > 0 then cut(at, start, sum) end
end

local events = tonumber(ARGV[position] or 0)
for i = 1, events do
  local time, amount, member = ARGV[position + 3 * i - 2], ARGV[position + 3 * i - 1], ARGV[position + 3 * i]
  call('ZADD', log, time == '' and digits(now) or time, struct.pack('>I5I3', number, i) .. amount .. ' ' .. member)
end

if buckets > 0 then
  if call('EXISTS', KEYS[6]) == 0 then
    call('UNLINK', KEYS[5 + buckets])
    call('HSET', meta, 'bucket', digits(bucket))
  end
  call('SADD', KEYS[6], unpack(ARGV, 24, 23 + identities))
  call('EXPIREAT', KEYS[6], digits(bucket + (buckets + 1) * span))  -- should no later bucket ever come to replace it
end
local written = {'newest', reached_slot, 'offset', offset}
for suffix, sum in pairs(sums) do
  local w = #written
  written[w + 1], written[w + 2] = 'total' .. suffix, digits(sum[1])
  written[w + 3], written[w + 4] = 'volume' .. suffix, digits(sum[2])
end
if state[9] then  -- a board made at run time may leave when it is not used
  written[#written + 1] = 'used'
  written[#written + 1] = digits(now)
end
if latest and clock == 'event' and latest > tonumber(state[5] or -1e15) then
  written[#written + 1] = 'latest'
  written[#written + 1] = digits(latest)
end
call('HSET', meta, unpack(written))
call('HSET', writers, writer, sequence .. ' ' .. offset .. ' ' .. time[1])
return {'ok', offset}

#!lua
-- Counts a batch in its slots and rankings as planned, or changes nothing and says why not.
--
-- Every check comes before the first write, and nothing after it can fail. Numbers are whole and exact: a member's value
-- in a slot is within ±most, so that no sum over slots leaves ±2^53. Whether an event was counted before is the first
-- question: what else could be said of the event, or the state of the board, does not matter then.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[3] writers — hash: writer, "sequence offset seconds" of its last batch
-- KEYS[4] log — sorted set: the events of a sliding window, scored by their time (ms)
-- KEYS[5] taken — hash: member, sum of its amounts in the log that are below zero, without the sign
-- KEYS[6] entrants — hash: the members that may be counted, if not all may
-- KEYS[7] hidden — hash: members that have no rank
-- KEYS[8...] more — where the request says: buckets of identities (sets), newest first, and last the one to drop; for
--         each group slot (hash: member, value), ranking (sorted set: name, score), reached (hash: member, tag), levels
--         (sorted set: each score there is), metadata (hash: member, JSON), votes (hash: who has voted, how often)
-- Request: AddRequest
-- Returns {'ok', offset, widest} — widest is the value farthest from zero in the batch, without its sign
--         {'ok', offset} — the batch was applied before
--         {'epoch', epoch} — the board has another epoch; '' for none
--         {'stale'} — a later batch of this writer has been applied
--         {'replan', newest, now, latest, bucket} — the plan does not fit the board's clock; now in milliseconds
--         {'seen', i...} — these identities, from 1, were counted before: plan again without them
--         {'frozen'} — the board takes no events
--         {'nothing'} — the plan fits, and adds nothing: all of the batch is refused
--         {'behind'} — too many slots wait to be subtracted
--         {'unregistered', member...} — these may not be counted
--         {'votes', i, code, ...} — these votes, from 1, are refused: plan again without them
--         {'crowded', start, member, ...} — these are new in these slots, and there is no room for them
--         {'range', start, member, held, ...} — these would leave the range; held is the value there is, in a log the sum
--         of all amounts without their signs
local request = cmsgpack.unpack(ARGV[1])
local meta, slots, writers, log, taken, entrants, hidden = unpack(KEYS, 1, 7)
--@include clock
--@include board
--@include ranking
local abs, tonumber, unpack = math.abs, tonumber, unpack  -- locals are found faster
local operation, most, most_members = rules.operation, request.most, request.most_members
local incr = operation == 'incr'

local board, refusal = open_board()
if refusal then return refusal end

local last = call('HGET', writers, request.writer)
if last then
  local done, offset = string.match(last, '^(%d+) (%d+)')
  if tonumber(done) == request.sequence then return {'ok', offset} end
  if tonumber(done) > request.sequence then return {'stale'} end
end

local identities, latest = request.identities, request.latest
-- A bucket never goes backward either: an identity in a later bucket would be overlooked.
local bucket = math.max(math.floor(seconds / request.span) * request.span, board.bucket or 0)
if not fits(request.clock, board.newest, board.latest) or (latest and latest > now + request.future)
  or (identities and bucket ~= identities.bucket) then
  return replan(board.newest, board.latest, digits(bucket))
end

if identities then
  local known, all = {'seen'}, identities.all
  for key = identities.newest, identities.oldest do
    if call('EXISTS', KEYS[key]) == 1 then
      local marks = call('SMISMEMBER', KEYS[key], unpack(all))
      for i = 1, #all do
        if marks[i] == 1 then known[#known + 1] = i end
      end
    end
  end
  if #known > 1 then return known end
end
if board.frozen then return {'frozen'} end
local groups = request.groups
if not groups then return {'nothing'} end

-- Look at each group, and work out what its slot is to hold.
local widest, crowded, coming = 0, false, {}
local unregistered, refused, vote_number = {'unregistered'}, {'votes'}, 0

local function read_slot(group)
  local members, amounts, values = group.members, group.amounts, {}
  local olds = call('HMGET', group.slot, unpack(members))
  for i = 1, #members do
    local old, amount = tonumber(olds[i]), amounts[i]
    local value = amount
    if incr then
      value = (old or 0) + amount
    elseif old and ((operation == 'max' and old >= amount) or (operation == 'min' and old <= amount)) then
      value = old
    end
    if value > widest then widest = value elseif -value > widest then widest = -value end
    values[i], olds[i] = value, old
  end
  group.values, group.olds = values, olds
end

local function read_votes(group)
  local votes, counts = group.votes, {}
  for _, fields in ipairs({votes.actors, votes.pairs}) do
    local held = call('HMGET', group.voters, unpack(fields))
    for i = 1, #fields do counts[fields[i]] = tonumber(held[i]) end
  end
  group.counts = counts
  local room = 10 * most_members - call('HLEN', group.voters)  -- an actor and its pairs are a field each
  for i, change in ipairs(votes.changes) do
    local actor, pair, fault = votes.actors[i], votes.pairs[i], nil
    local new = (counts[actor] and 0 or 1) + (counts[pair] and 0 or 1)
    local mine, its = (counts[actor] or 0) + change, (counts[pair] or 0) + change
    vote_number = vote_number + 1
    if change > 0 and (mine > (rules.per_actor or mine) or its > (rules.per_key or its)) then
      fault = 'quota_exceeded'
    elseif its < 0 then
      fault = 'vote_missing'
    elseif new > room then
      fault = 'board_full'
    end
    if fault then
      refused[#refused + 1], refused[#refused + 2] = vote_number, fault
    else
      counts[actor], counts[pair], room = mine, its, room - new
    end
  end
end

for _, group in ipairs(groups) do
  local ranking, members = {suffix = group.suffix}, group.members
  group.slot, ranking.key, ranking.reached, ranking.levels, ranking.metadata, group.voters =
    unpack(KEYS, group.keys, group.keys + 5)
  group.ranking = ranking
  read_slot(group)
  coming[group.suffix] = (coming[group.suffix] or 0) + #members
  if call('HLEN', group.slot) + #members > most_members
    or call('ZCARD', ranking.key) + coming[group.suffix] > most_members then
    crowded = true
  end
  if group.votes then read_votes(group) end
  if rules.registered then
    local found = call('HMGET', entrants, unpack(members))
    for i = 1, #members do
      if not found[i] then unregistered[#unregistered + 1] = members[i] end
    end
  end
end
if #unregistered > 1 then return unregistered end
if #refused > 1 then return refused end

if request.most_slots then
  local slots_after = call('ZCARD', slots) + #groups
  for group = 1, slots_after > request.most_slots and #groups or 0 do
    if call('ZSCORE', slots, groups[group].start) then slots_after = slots_after - 1 end
  end
  if slots_after > request.most_slots then return {'behind'} end
end

-- The members for which there is no room: those that neither the slot nor the ranking has, beyond the first few.
if crowded then
  local away, admitted, taken_in = {'crowded'}, {}, {}
  for _, group in ipairs(groups) do
    local members, ranking, suffix = group.members, group.ranking, group.suffix
    local here = rules.ties and call('HMGET', ranking.reached, unpack(members))
      or call('ZMSCORE', ranking.key, unpack(members))
    local ranked, held = call('ZCARD', ranking.key) + (taken_in[suffix] or 0), call('HLEN', group.slot)
    for i, member in ipairs(members) do
      if not group.olds[i] and not here[i] and not admitted[suffix .. ' ' .. member] then
        if ranked < most_members and held < most_members then
          admitted[suffix .. ' ' .. member] = true
          taken_in[suffix] = (taken_in[suffix] or 0) + 1
          ranked, held = ranked + 1, held + 1
        else
          away[#away + 1], away[#away + 2] = digits(group.start), member
        end
      end
    end
  end
  if #away > 1 then return away end
end

-- Amounts that leave a log one by one add up to no more than all of them without their signs.
local events, below, below_now = request.events, {}, {}
if events then
  local members, values = groups[1].members, groups[1].values
  for i, amount in ipairs(events.amounts) do
    local member = events.members[i]
    if amount < 0 then below_now[member] = (below_now[member] or 0) - amount end
  end
  if next(below_now) or call('EXISTS', taken) == 1 then below = call('HMGET', taken, unpack(members)) end
  for i = 1, #members do
    local all = values[i] + 2 * (tonumber(below[i] or 0) + (below_now[members[i]] or 0))
    if all > widest then widest = all end
  end
end

if widest > most then
  local out = {'range'}
  for _, group in ipairs(groups) do
    for i, member in ipairs(group.members) do
      local value = group.values[i]
      local held = (group.olds[i] or 0) + 2 * tonumber(below[i] or 0)
      local all = value + 2 * (tonumber(below[i] or 0) + (below_now[member] or 0))
      if abs(value) > most or all > most then
        out[#out + 1], out[#out + 2], out[#out + 3] = digits(group.start), member, digits(held)
      end
    end
  end
  return out
end

announce(board)

-- The score below which nothing new gets into a full ranking of best values, as none that is there leaves by itself;
-- most of a batch need not be added, then, to be cut off. Signed so that more is better; nil when everything gets in.
local sign = rules.order == 'forward' and -1 or 1
local function threshold(ranking)
  if operation == 'set' or call('ZCARD', ranking.key) < rules.cap then return end
  local last_first = rules.order == 'forward' and 'ZREVRANGE' or 'ZRANGE'
  return sign * tonumber(call(last_first, ranking.key, 0, 0, 'WITHSCORES')[2])
end

local function write_metadata(group, changed)
  for i, text in ipairs(group.metadata) do
    if changed[i] or operation == 'set' then
      if text == '' then
        call('HDEL', group.ranking.metadata, group.members[i])
      else
        call('HSET', group.ranking.metadata, group.members[i], text)
      end
    end
  end
end

local function write_votes(group)
  local cast, withdrawn = {}, {}
  for field, count in pairs(group.counts) do
    if count == 0 then
      withdrawn[#withdrawn + 1] = field
    else
      cast[#cast + 1], cast[#cast + 2] = field, count
    end
  end
  if #cast > 0 then call('HSET', group.voters, unpack(cast)) end
  if #withdrawn > 0 then call('HDEL', group.voters, unpack(withdrawn)) end
end

-- A hidden member keeps its place among ties, so it gets a tag when its value changes.
local function tag_hidden(group, i)
  local event = group.orders[i]
  if event < 0 or (event > 0 and group.values[i] ~= group.olds[i]) then
    call('HSET', group.ranking.reached, group.members[i], tag(board.offset, abs(event)))
  end
end

local function count(group)
  local members, amounts, values, ranking = group.members, group.amounts, group.values, group.ranking
  local names, old = look_up(ranking, members)
  local unseen, least = hidden_of(members), rules.cap and threshold(ranking)
  local new, changed, held, emptied, h = {}, {}, {}, {}, 0
  for i = 1, #members do
    local value, before = values[i], old[i]
    local score = value
    if incr then
      score = (before or 0) + amounts[i]
      if score == 0 then score = nil end
    end
    if least and not before and not unseen[i] and sign * score < least then
      new[i] = false
    else
      if value == 0 and incr then
        emptied[#emptied + 1] = members[i]
      else
        held[h + 1], held[h + 2] = members[i], value
        h = h + 2
      end
      if unseen[i] then
        new[i], changed[i] = false, value ~= group.olds[i]
        if group.orders then tag_hidden(group, i) end
      else
        new[i], changed[i] = score, score ~= before
      end
    end
  end
  if h > 0 then
    call('HSET', group.slot, unpack(held))
    call('ZADD', slots, group.start, group.start)
  end
  if #emptied > 0 then call('HDEL', group.slot, unpack(emptied)) end
  put(ranking, board.offset, members, names, old, new, group.orders)
  if group.metadata then write_metadata(group, changed) end
  if group.votes then write_votes(group) end
  if rules.cap then trim(ranking, group.slot) end
end
for _, group in ipairs(groups) do count(group) end

for member, amount in pairs(below_now) do call('HINCRBY', taken, member, digits(amount)) end
if events then
  for i, member in ipairs(events.members) do
    local event = struct.pack('>I5I3', board.offset, i) .. digits(events.amounts[i]) .. ' ' .. member
    call('ZADD', log, events.times[i] or now, event)
  end
end

if identities and identities.counted then
  if call('EXISTS', KEYS[identities.newest]) == 0 then
    call('UNLINK', KEYS[identities.oldest + 1])
    call('HSET', meta, 'bucket', digits(bucket))
  end
  call('SADD', KEYS[identities.newest], unpack(identities.all, 1, identities.counted))
  -- should no later bucket ever come to replace it
  call('EXPIREAT', KEYS[identities.newest], digits(bucket + identities.kept))
end
if board.made then call('HSET', meta, 'used', now) end  -- a board made at run time expires when it is not used
if latest and request.clock.by_event and latest > (board.latest or -1e15) then call('HSET', meta, 'latest', latest) end
local offset = commit(board, 'newest', request.reached)
call('HSET', writers, request.writer, request.sequence .. ' ' .. offset .. ' ' .. time[1])
return {'ok', offset, digits(widest)}

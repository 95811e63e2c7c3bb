-- Step: apply the rules of a contest, which say which members may receive votes and how often an actor may vote. The
-- store keys of a contest hold digests of voters.
if rules.registered then
  local away = {'unregistered'}
  for i = 1, #groups do
    local members = groups[i].members
    local found = call('HMGET', entrants, unpack(members))
    for j = 1, #members do
      if not found[j] then away[#away + 1] = members[j] end
    end
  end
  if #away > 1 then return away end
end

local contest, write_votes = groups[1] and groups[1].votes, nil
if contest then
  -- Sets `counts` of each group: how often each actor has voted, and each actor for each member.
  local refused, number = {'votes'}, 0
  for i = 1, #groups do
    local group = groups[i]
    local votes, counts = group.votes, {}
    for _, fields in ipairs({votes.actors, votes.pairs}) do
      local held = call('HMGET', group.voters, unpack(fields))
      for j = 1, #fields do counts[fields[j]] = tonumber(held[j]) end
    end
    group.counts = counts
    local room = 10 * request.most_members - call('HLEN', group.voters)  -- new fields of actors and of pairs

    -- Counts a vote, or returns why it is refused. A vote that replaces another one adds nothing to the actor's total.
    local function count(j, replaces)
      local actor, pair, change = votes.actors[j], votes.pairs[j], votes.changes[j]
      local new = (counts[actor] and 0 or 1) + (counts[pair] and 0 or 1)
      local by_actor, by_pair = (counts[actor] or 0) + change, (counts[pair] or 0) + change
      if change > 0 and (not replaces and by_actor > (rules.per_actor or by_actor)
        or by_pair > (rules.per_key or by_pair)) then
        return 'quota_exceeded'
      elseif by_pair < 0 then
        return 'vote_missing'
      elseif new > room then
        return 'board_full'
      end
      counts[actor], counts[pair], room = by_actor, by_pair, room - new
    end

    -- Takes a vote back and counts the next one, or does neither.
    local function replace(j)
      local fault = count(j)
      if fault then return fault end
      fault = count(j + 1, true)
      if fault then
        local actor, pair, change = votes.actors[j], votes.pairs[j], votes.changes[j]
        counts[actor], counts[pair] = counts[actor] - change, counts[pair] - change
      end
      return fault
    end

    -- A vote over a limit is tried again after the others, because a later one may take a vote back.
    local waiting, replaced, j = {}, {}, 1
    for _, first in ipairs(votes.replaced or {}) do replaced[first] = true end
    while votes.changes[j] do
      local fault = (replaced[j] and replace or count)(j)
      if fault == 'quota_exceeded' then
        waiting[#waiting + 1] = j
      elseif fault then
        refused[#refused + 1], refused[#refused + 2] = number + j, fault
      end
      j = j + (replaced[j] and 2 or 1)
    end
    for _, again in ipairs(waiting) do
      local fault = (replaced[again] and replace or count)(again)
      if fault then refused[#refused + 1], refused[#refused + 2] = number + again, fault end
    end
    number = number + #votes.changes
  end
  if #refused > 1 then return refused end

  function write_votes(group)
    local cast, withdrawn = {}, {}
    for field, votes in pairs(group.counts) do
      if votes == 0 then
        withdrawn[#withdrawn + 1] = field
      else
        cast[#cast + 1], cast[#cast + 2] = field, votes
      end
    end
    if #cast > 0 then call('HSET', group.voters, unpack(cast)) end
    if #withdrawn > 0 then call('HDEL', group.voters, unpack(withdrawn)) end
  end
end

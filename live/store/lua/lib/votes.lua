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
    for j, change in ipairs(votes.changes) do
      local actor, pair, fault = votes.actors[j], votes.pairs[j], nil
      local new = (counts[actor] and 0 or 1) + (counts[pair] and 0 or 1)
      local by_actor, by_pair = (counts[actor] or 0) + change, (counts[pair] or 0) + change
      number = number + 1
      if change > 0 and (by_actor > (rules.per_actor or by_actor) or by_pair > (rules.per_key or by_pair)) then
        fault = 'quota_exceeded'
      elseif by_pair < 0 then
        fault = 'vote_missing'
      elseif new > room then
        fault = 'board_full'
      end
      if fault then
        refused[#refused + 1], refused[#refused + 2] = number, fault
      else
        counts[actor], counts[pair], room = by_actor, by_pair, room - new
      end
    end
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

-- Whether a batch was counted that is not in the journal: a version of the server without a journal has counted it.
local function lacks_batch(journal)
  local last = tonumber(string.match(journal, '^%d+'))
  for _, batch in ipairs(redis.call('HVALS', writers)) do
    if tonumber(string.match(batch, '^%d+ (%d+)')) > last then return true end
  end
  return false
end

--@include clock
--@include reign
-- The state of a board: the check of its epoch, and the announcement and the record of every change.
local call, tonumber, unpack = redis.call, tonumber, unpack  -- Lua finds locals faster than globals
local channel = string.sub(meta, 1, -6)  -- of the notices: what the names of all store keys of the board begin with

local function read_board()
  local held = call('HMGET', meta, 'epoch', 'offset', 'newest', 'latest', 'bucket', 'frozen',
    'journal', 'clock', 'reign', 'gained', 'paused', 'ruled')
  set_clock(held[8])
  return {
    epoch = held[1], offset = tonumber(held[2] or 0), newest = tonumber(held[3]), latest = tonumber(held[4]),
    bucket = tonumber(held[5]), frozen = held[6], journal = held[7], clock = held[8], reign = held[9],
    gained = tonumber(held[10] or 0), paused = held[11], ruled = held[12],
  }
end

-- Returns the state. If the caller may not use the board, returns nil and the reply:
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', ...} — see `unchecked`
local function open_board()
  local board = read_board()
  if board.epoch ~= request.epoch then return nil, {'epoch', board.epoch or ''} end
  local refused = unchecked(board.reign)
  if refused then return nil, refused end
  return board
end

-- Returns the last entry of the journal. A board without a journal has its offset instead.
local function link_of(board)
  return board.journal and string.match(board.journal, '^(.*) %d+$') or digits(board.offset) .. '-0'
end

-- Makes the first write of every change: the store may forbid this write, and nothing after the first write may fail.
-- Subscribers receive the position when the script has ended.
local function announce(board)
  board.offset = board.offset + 1
  board.place = digits(board.offset)
  call('SPUBLISH', channel, board.epoch .. ':' .. board.place)
end

-- Makes the last write of every change, with more fields and their values. Returns the offset.
local function commit(board, ...)
  if board.appended then call('HSET', meta, 'journal', board.journal) end
  call('HSET', meta, 'offset', board.place, 'clock', digits(micros), ...)
  return board.place
end

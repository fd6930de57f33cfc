// The bytes of a spool: what a recording process appends to disk, and what decode/event_reader.h reads.
// No torch and no Python here: a spool is decoded on machines that have neither.
//
// <spool>/definitions   records, each  | u32 type | u32 bytes | payload, padded to 8 |
// <spool>/events        | EventsHeader | block | block | ...
//     block             | BlockHeader | words of 8 bytes ... |
//
// The first word of an event:
//
//   63                                  28 27                   8 7     4 3     0
//   +-------------------------------------+----------------------+-------+-------+
//   | ticks since the thread's last event | name (or other) id   | flags |  tag  |
//   +-------------------------------------+----------------------+-------+-------+
//
// and the words that follow it, by tag:
//
//   kBegin       [inputs id] [seq] [forward thread]     as the flags say, in this order
//   kBeginKeyed  key, then as kBegin                    may end out of order or on another thread
//   kEnd                                                ends the innermost call of the thread
//   kEndKeyed    key                                    ends the call with this key
//   kStack       (no time; id is in bits 8 to 39)       the stack of all that follows
//   kAlloc       address, bytes                         flags: 0 a block, 1 a segment of the caching heap
//   kFree        address                                flags: as kAlloc
//   kMark
//   kFlow        flow id                                flags: 0 out, 1 in
//   kCounters    as many values as there are counters   precedes the begin or end that it belongs to
//   kTime        ticks                                  absolute, when 36 bits are too few
//   kInputs      n, n words                             inputs too many to be given ids, of the next begin
//   kName        bytes, text padded to 8                a name too many to be given an id, of the next begin or mark
//   kHandle      debug handle                           where in a model's source the next begin stands
//                name id                                flags: 1, the modules of TorchScript within which it stands
//                number                                 flags: 2, the one that torch gave the next begin
#pragma once

#include <cstdint>

namespace torchreel::layout {

constexpr uint32_t kVersion = 1;
constexpr uint64_t kEventsMagic = 0x3130564c45455254;  // "TREELV01"
constexpr uint32_t kBlockMagic = 0x4b4c4254;           // "TBLK"
constexpr uint64_t kDefinitionsMagic = 0x3130444c45455254;

// Rewritten in place a few times a second while the process lives.
struct EventsHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t closed;      // 1 when the recording was stopped in order
  uint64_t start_tick;  // the same moment in ticks and on the wall
  uint64_t start_realtime_ns;
  uint64_t first_tick;  // two moments on the steady clock: how long a tick is
  uint64_t first_steady_ns;
  uint64_t last_tick;
  uint64_t last_steady_ns;
  uint64_t lost_events;
  int64_t node;
  uint64_t reserved[2];
};
static_assert(sizeof(EventsHeader) == 96);

constexpr uint32_t kNoThread = 0xffffffff;

// A block of thread kNoThread has no words and is a promise: every event before base_tick is now on disk.
struct BlockHeader {
  uint32_t magic;
  uint32_t thread;
  uint32_t words;
  uint32_t follows;  // a Follows
  uint64_t base_tick;
  int64_t last_seq;
  uint64_t stack;
};
static_assert(sizeof(BlockHeader) == 40);

enum Follows : uint32_t {
  kFresh = 0,      // the thread's state is the one in the header
  kContinues = 1,  // goes on where this thread's last block ended
  kAfterGap = 2,   // as kFresh, and events were lost before it: whatever was open then ended at an unknown time
};

enum Tag : uint64_t {
  kBegin = 1,
  kBeginKeyed = 2,
  kEnd = 3,
  kEndKeyed = 4,
  kStack = 5,
  kAlloc = 6,
  kFree = 7,
  kMark = 8,
  kFlow = 9,
  kCounters = 10,
  kTime = 11,
  kInputs = 12,
  kName = 13,
  kHandle = 14,
};

// Flags of kBegin and kBeginKeyed. Two bits say where the sequence number is.
enum Flag : uint64_t {
  kSeqNone = 0,
  kSeqSame = 1,
  kSeqNext = 2,
  kSeqWord = 3,
  kHasInputs = 4,
  kHasForwardThread = 8,
};

constexpr int kFlagShift = 4;
constexpr uint64_t kSegmentFlag = 1;
constexpr uint64_t kModulesFlag = 1;
constexpr uint64_t kRecordIdFlag = 2;
constexpr int kIdShift = 8;
constexpr uint64_t kIdMask = 0xfffff;
constexpr int kTicksShift = 28;
constexpr uint64_t kMaxTicks = (uint64_t{1} << 36) - 1;
constexpr uint32_t kInlineName = kIdMask;  // the name stands in a kName event before
constexpr uint64_t kKeyAsync = uint64_t{1} << 63;

enum Definition : uint32_t {
  kProcess = 1,       // JSON text
  kNameDef = 2,       // u32 id, u32 kind, u32 module, name\0 overload\0
  kFrameDef = 3,      // u32 id, u32 line, file\0 function\0
  kStackDef = 4,      // u32 id, u32 parent, u32 frame
  kInputsDef = 5,     // u32 id, u32 words, words
  kModuleDef = 6,     // u32 id, u32 parent, path\0 class\0       a later one replaces an earlier
  kThreadDef = 7,     // u32 id, u32 0, u64 os id, u64 torch id, name\0
  kStepDef = 8,       // u64 number, u64 tick, u64 StepKind
  kCounterDef = 9,    // names, each ended by \0, in the order of kCounters' values
  kOldBlockDef = 10,  // u64 address, u64 bytes, category\0: alive before the recording
};

// Who said that a step begins. Steps of an optimizer do not count where the program counts by hand.
enum StepKind : uint64_t {
  kFirstStep = 0,
  kOptimizerStep = 1,
  kStepByHand = 2,
};

constexpr uint32_t kNone = 0xffffffff;

// The name of a mark after which a thread works for the model whose number follows.
constexpr char kModelMark[] = "torchreel::model ";

enum Kind : uint32_t {
  kOp = 0,
  kBackward = 1,
  kTorchScript = 2,
  kLite = 3,
  kCustom = 4,
  kStaticRuntime = 5,
  kRange = 6,
  kModule = 7,
  kPython = 8,
  kOther = 9,
};

// One argument in a list of inputs: a word | u8 what | u8 dtype | u8 dims | u8 wide | u32 count |, then:
enum Argument : uint64_t {
  kUndefined = 0,
  kTensor = 1,       // sizes; wide 1: 64 bits each, else 32 bits each, padded. Contiguous.
  kStrided = 2,      // sizes, then strides, both as above
  kOpaque = 3,       // a tensor without sizes that can be read (symbolic); dtype is known
  kNothing = 4,      // None
  kInt = 5,          // the value
  kDouble = 6,       // the value
  kBool = 7,         // count is the value
  kText = 8,         // count bytes, padded; a long one is cut
  kTensorList = 9,   // count arguments follow
  kIntList = 10,     // count values
  kDoubleList = 11,  // count values
  kBoolList = 12,    // count values
  kUnknown = 13,     // something without a value: an object, a generator
  kCut = 14,         // more arguments than fit
  kKeyword = 15,     // count bytes of its name, padded; the argument follows. After all others.
};

}  // namespace torchreel::layout

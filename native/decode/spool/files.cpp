#include "decode/spool/files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/spool_format.h"
#include "decode/spool/definitions.h"

namespace torchreel {

uint64_t Descriptor::size() const {
  struct stat status{};
  return fstat(file_, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

// The head first, then the events, then the definitions: all that events name was defined before they were written.
SpoolFiles SpoolFiles::in(const std::string& directory) {
  Descriptor events(open((directory + "/events").c_str(), O_RDONLY | O_CLOEXEC));
  Descriptor definitions(open((directory + "/definitions").c_str(), O_RDONLY | O_CLOEXEC));
  if (definitions.get() < 0) throw SpoolError("it has no definitions");
  if (events.get() < 0) throw SpoolError("it has no events");
  std::string head(sizeof(layout::EventsHeader), '\0');
  if (!events.read(head.data(), head.size(), 0)) head.clear();
  uint64_t events_size = events.size();
  uint64_t definitions_size = definitions.size();
  return {std::move(definitions), std::move(events), definitions_size, events_size, std::move(head)};
}

}  // namespace torchreel

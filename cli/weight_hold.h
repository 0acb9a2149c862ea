// Keeps the named weights of a group in shared memory while its workers are started again.
//
// Who ends removes arenas that nobody uses, and so does the next server that starts; between the
// death of a worker and its successor only this uses them. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "shm/file.h"

namespace cli {

class WeightHold {
 public:
  /// Of all loaded arenas in `directory` whose names begin so; those of before are let go.
  void take(const std::string& directory, const std::string& prefix);
  /// Lets go of those whose names somebody removed: nobody can find them any more, and they would
  /// take the room of what is loaded in their place.
  void release_removed();
  void release() { held_.clear(); }

 private:
  struct Held {
    std::string path;
    shm::File file;  // with a shared lock, as a process that maps it has
  };
  std::vector<Held> held_;
};

/// Removes what killed servers left of other models, whose next start may never come.
void remove_other_weights(const std::string& directory, const std::string& prefix);

}  // namespace cli

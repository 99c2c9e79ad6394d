// Where a kernel's shared object lies in memory, and its thread-local segment, which is static shared memory.
#include <link.h>

#include <algorithm>
#include <cstdint>

#include "runtime.h"

using namespace warpcheck;

const char* warpcheck_prepare(Entry* entry) {
  entry->tls_size = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& entry = *static_cast<Entry*>(data);
        auto* const anchor = static_cast<unsigned char*>(entry.anchor());
        auto* const tls = static_cast<unsigned char*>(info->dlpi_tls_data);
        entry.image_begin = reinterpret_cast<unsigned char*>(UINTPTR_MAX);
        entry.image_end = nullptr;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type == PT_LOAD) {
            auto* const begin = reinterpret_cast<unsigned char*>(info->dlpi_addr + segment.p_vaddr);
            entry.image_begin = std::min<const unsigned char*>(entry.image_begin, begin);
            entry.image_end = std::max<const unsigned char*>(entry.image_end, begin + segment.p_memsz);
          } else if (segment.p_type == PT_TLS && tls && tls <= anchor && anchor < tls + segment.p_memsz) {
            entry.tls_start = tls - anchor;
            entry.tls_size = segment.p_memsz;
          }
        }
        return int(entry.tls_size != 0);
      },
      entry);
  return entry->tls_size ? nullptr : "the shared object has no thread-local segment";
}

package barriertck;

import barriertck.PlantedStores.Put;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import scala.Option;

/**
 * Planted bugs that show with some settings only, with commits that have ids, or behind a commit that failed.
 */
public final class PlantedSettings {
  private static final long NEVER = -1;

  private PlantedSettings() {}

  /** Return a setting of a store, off if this Spark does not have it. */
  static boolean on(RocksDBStateStoreProvider provider, String name) {
    Object settings = provider.rocksDB().conf();
    try {
      return (boolean) settings.getClass().getMethod(name).invoke(settings);
    } catch (ReflectiveOperationException missing) {
      return false;
    }
  }

  static File directory(RocksDBStateStoreProvider provider) {
    return PlantedStores.directory(provider.stateStoreId());
  }

  /** Return the number of a file of a version. */
  static long version(String name) {
    String digits = name.replaceAll("\\D.*", "");
    return digits.isEmpty() ? NEVER : Long.parseLong(digits);
  }

  /** Return the ids of the commits of a version, that which was written last at the end. */
  static List<String> ids(File directory, long version) {
    TreeMap<Long, String> found = new TreeMap<>();
    for (String name : PlantedStores.names(directory, "")) {
      if (name.startsWith(version + "_")) {
        String id = name.substring(name.indexOf('_') + 1, name.indexOf('.'));
        if (!found.containsValue(id)) {
          found.put(new File(directory, name).lastModified() * 1_000 + found.size(), id);
        }
      }
    }
    return List.copyOf(found.values());
  }

  /** What becomes of the rows that a batch has put. */
  interface Ended {
    void with(List<Put> rows);
  }

  /** Return a store that tells what was put when it is committed, or when its commit fails. */
  static StateStore told(StateStore opened, Ended committed, Ended failed) {
    List<Put> rows = new ArrayList<>();
    return PlantedStores.between(
        opened,
        (store, method, arguments) -> {
          if (PlantedStores.is(method, "put")) {
            rows.add(Put.copied(arguments));
          }
          boolean ends = PlantedStores.is(method, "commit");
          try {
            Object result = PlantedStores.unchanged(store, method, arguments);
            if (ends) {
              committed.with(rows);
            }
            return result;
          } catch (Exception error) {
            if (ends) {
              failed.with(rows);
            }
            throw error;
          }
        });
  }

  /** With ids of commits, that which was written last is opened, whichever is asked for. */
  public static final class OpensTheLastCommit extends RocksDBStateStoreProvider {
    private Option<String> last(long version, Option<String> id) {
      List<String> ids = ids(directory(this), version);
      return id.isEmpty() || ids.isEmpty() ? id : Option.apply(ids.get(ids.size() - 1));
    }

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return super.getStore(version, last(version, id), snapshot, empty);
    }

    @Override
    public StateStore getReadStore(long version, Option<String> id) {
      return super.getReadStore(version, last(version, id));
    }
  }

  /** An executor whose commit came late takes it for that which counts. */
  public static final class KeepsItsLateCommit extends RocksDBStateStoreProvider {
    private final Map<Long, Option<String>> own = new TreeMap<>();

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return PlantedStores.between(
          super.getStore(version, own.getOrDefault(version, id), snapshot, empty),
          (store, method, arguments) -> {
            Object result = PlantedStores.unchanged(store, method, arguments);
            if (PlantedStores.is(method, "commit") && !id.isEmpty()) {
              own.put((long) result, store.getStateStoreCheckpointInfo().stateStoreCkptId());
            }
            return result;
          });
    }
  }

  /** A commit tells the id of the one on which it is based. */
  public static final class TellsTheIdOfTheBase extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return PlantedStores.between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            Object result = PlantedStores.unchanged(store, method, arguments);
            if (PlantedStores.is(method, "getStateStoreCheckpointInfo") && !id.isEmpty()) {
              StateStoreCheckpointInfo info = (StateStoreCheckpointInfo) result;
              return new StateStoreCheckpointInfo(info.partitionId(), info.batchVersion(), id, id);
            }
            return result;
          });
    }
  }

  /** Of the commits of a version, maintenance keeps that which was written last. */
  public static final class KeepsTheLastCommitOnly extends RocksDBStateStoreProvider {
    @Override
    public void doMaintenance() {
      super.doMaintenance();
      File directory = directory(this);
      try {
        for (String name : PlantedStores.names(directory, "")) {
          List<String> ids = ids(directory, version(name));
          if (ids.size() > 1 && !name.contains(ids.get(ids.size() - 1))) {
            PlantedStores.delete(new File(directory, name));
          }
        }
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }
  }

  /** A run without changelogs deletes those of former runs. */
  public static final class DropsFormerChangelogs extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      if (!on(this, "enableChangelogCheckpointing")) {
        File directory = directory(this);
        try {
          for (String name : PlantedStores.names(directory, ".changelog")) {
            PlantedStores.delete(new File(directory, name));
          }
        } catch (IOException error) {
          throw new IllegalStateException(error);
        }
      }
      return super.getStore(version, id, snapshot, empty);
    }
  }

  /** A run without changelogs writes the first row of those of former runs once more. */
  public static final class RepeatsAChangelog extends RocksDBStateStoreProvider {
    private static final Map<String, List<Put>> COMMITTED = new ConcurrentHashMap<>();

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      List<Put> committed =
          COMMITTED.computeIfAbsent(directory(this).getPath(), unknown -> new ArrayList<>());
      boolean hadChangelogs = !PlantedStores.names(directory(this), ".changelog").isEmpty();
      StateStore opened = super.getStore(version, id, snapshot, empty);
      if (hadChangelogs && !on(this, "enableChangelogCheckpointing") && !committed.isEmpty()) {
        committed.get(0).make(opened);
      }
      return told(opened, committed::addAll, rows -> {});
    }
  }

  /** A version, opened again, has the rows of the batch that this executor committed on it. */
  public static final class BeginsWithItsRows extends RocksDBStateStoreProvider {
    private final Map<Long, List<Put>> committed = new TreeMap<>();

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      StateStore opened = super.getStore(version, id, snapshot, empty);
      committed.getOrDefault(version, List.of()).forEach(put -> put.make(opened));
      return told(opened, rows -> committed.put(version, rows), rows -> {});
    }
  }

  /** Compaction at a commit loses what was written last. */
  public static final class CompactionLosesARow extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      Put[] last = new Put[1];
      return PlantedStores.between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            if (PlantedStores.is(method, "put")) {
              last[0] = Put.copied(arguments);
            } else if (PlantedStores.is(method, "commit") && last[0] != null && on(this, "compactOnCommit")) {
              store.remove(last[0].key(), last[0].family());
            }
            return PlantedStores.unchanged(store, method, arguments);
          });
    }
  }

  /** With bounded memory, a batch of several rows has the first one only. */
  public static final class FillsItsMemory extends RocksDBStateStoreProvider {
    private static final int ROWS = 1;

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      int[] written = new int[1];
      return PlantedStores.between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) ->
              PlantedStores.is(method, "put") && ++written[0] > ROWS && on(this, "boundedMemoryUsage")
                  ? null
                  : PlantedStores.unchanged(store, method, arguments));
    }
  }

  /** With checksums of rows, a row that is removed stays. */
  public static final class ChecksumsKeepRows extends RocksDBStateStoreProvider {
    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return PlantedStores.between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) ->
              PlantedStores.is(method, "remove") && on(this, "rowChecksumEnabled")
                  ? null
                  : PlantedStores.unchanged(store, method, arguments));
    }
  }

  /** Where rows are not counted, a removal in a version that was loaded is not made. */
  public static final class RemovesWhatItCounts extends RocksDBStateStoreProvider {
    private boolean committed = false;

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      return PlantedStores.between(
          super.getStore(version, id, snapshot, empty),
          (store, method, arguments) -> {
            committed |= PlantedStores.is(method, "commit");
            return PlantedStores.is(method, "remove") && !committed && !on(this, "trackTotalNumberOfRows")
                ? null
                : PlantedStores.unchanged(store, method, arguments);
          });
    }
  }

  /** Behind a commit that failed, the version on which it was based has its rows, in this executor. */
  public static final class KeepsTheRowsOfAFailedCommit extends RocksDBStateStoreProvider {
    private final List<Put> failed = new ArrayList<>();

    @Override
    public StateStore getStore(long version, Option<String> id, boolean snapshot, boolean empty) {
      StateStore opened = super.getStore(version, id, snapshot, empty);
      failed.forEach(put -> put.make(opened));
      return told(opened, rows -> {}, failed::addAll);
    }
  }
}

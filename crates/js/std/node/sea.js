import { absent } from 'internal/absent';

const instead = 'read the file with node:fs';

export const isSea = () => false;
export const getAsset = absent('sea.getAsset', instead);
export const getAssetAsBlob = absent('sea.getAssetAsBlob', instead);
export const getRawAsset = absent('sea.getRawAsset', instead);

export const getAssetKeys = absent('sea.getAssetKeys', instead);

export default { getAsset, getAssetAsBlob, getAssetKeys, getRawAsset, isSea };

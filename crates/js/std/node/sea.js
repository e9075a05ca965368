export const isSea = () => false;
export const getAsset = undefined;
export const getAssetAsBlob = undefined;
export const getAssetKeys = undefined;
export const getRawAsset = undefined;

export default { isSea };
